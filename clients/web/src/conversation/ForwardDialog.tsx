// Chooses the chat that messages are forwarded to.

import { useMemo, useState } from "react";
import type { Chat, Message } from "tierchat";
import { useChats } from "tierchat/react";
import { errorText } from "../app/errors";
import { directoryOf } from "../app/directory";
import { ChatAvatar } from "../chats/ChatAvatar";
import { useChatTitle } from "../chats/names";
import { Dialog, showToast, TextField } from "../design";
import { useText } from "../i18n";
import { useConversation } from "./model/context";
import styles from "./ForwardDialog.module.css";
import { forwardMessages } from "./model/forward";

const SHOWN_MAX = 50;

interface ForwardDialogProps {
  messages: readonly Message[];
  onClose: () => void;
}

export function ForwardDialog({ messages, onClose }: ForwardDialogProps) {
  const words = useText();
  const text = words.conversation;
  const model = useConversation();
  const chats = useChats();
  const [filter, setFilter] = useState("");
  const [busyChat, setBusyChat] = useState<string | null>(null);
  const shown = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    const directory = directoryOf(model.client);
    return chats
      .filter(({ isEnded, isLeft }) => !isEnded && !isLeft)
      .filter((chat) => {
        const name = chat.peer === null ? (chat.name ?? "") : directory.get(chat.peer).name;
        return `${name} ${chat.peer ?? ""}`.toLowerCase().includes(wanted);
      })
      .slice(0, SHOWN_MAX);
  }, [chats, filter, model]);
  const forward = async (chat: Chat, name: string): Promise<void> => {
    setBusyChat(chat.id);
    try {
      await forwardMessages(model.client, model.client.chat(chat.id), messages);
      showToast(text.forwarded(name));
      model.selection.set(null);
      onClose();
    } catch (error) {
      showToast(`${text.forwardFailed} ${errorText(error)}`, { kind: "error" });
      setBusyChat(null);
    }
  };
  return (
    <Dialog title={text.forwardTitle} onClose={onClose}>
      <TextField
        label={text.forwardFilter}
        isLabelHidden
        type="search"
        placeholder={text.forwardFilter}
        value={filter}
        autoFocus
        onChange={(event) => setFilter(event.target.value)}
      />
      <ul className={styles["list"]}>
        {shown.map((chat) => (
          <li key={chat.id}>
            <Target
              chat={chat}
              isBusy={busyChat === chat.id}
              isDisabled={busyChat !== null}
              onSelect={(name) => void forward(chat, name)}
            />
          </li>
        ))}
      </ul>
      {shown.length === 0 && <p className={styles["empty"]}>{text.forwardEmpty}</p>}
    </Dialog>
  );
}

interface TargetProps {
  chat: Chat;
  isBusy: boolean;
  isDisabled: boolean;
  onSelect: (name: string) => void;
}

function Target({ chat, isBusy, isDisabled, onSelect }: TargetProps) {
  const name = useChatTitle(chat);
  return (
    <button
      type="button"
      className={styles["target"]}
      disabled={isDisabled}
      aria-busy={isBusy}
      onClick={() => onSelect(name)}
    >
      <ChatAvatar chat={chat} size="s" />
      <bdi>{name}</bdi>
    </button>
  );
}
