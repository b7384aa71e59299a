// A list of chats to choose from, with a search.

import { Check } from "lucide-react";
import { useMemo, useState } from "react";
import type { Chat } from "tierchat";
import { useChats, useClient } from "tierchat/react";
import { TextField } from "../design";
import { ChatAvatar } from "../directory/ChatAvatar";
import { useChatTitle } from "../directory/chat_title";
import { getDirectory } from "../directory/directory";
import { useText } from "../i18n";
import styles from "./ChatChooser.module.css";

const SHOWN_MAX = 50;

interface ChatChooserProps {
  /** Id → name of the selected chats; absent: only one chat can be chosen. */
  selected?: ReadonlyMap<string, string>;
  isDisabled?: boolean;
  onChoose: (chat: Chat, name: string) => void;
}

/** A list of the chats in which the user can send messages. */
export function ChatChooser({ selected, isDisabled = false, onChoose }: ChatChooserProps) {
  const text = useText().conversation;
  const client = useClient();
  const chats = useChats();
  const [filter, setFilter] = useState("");
  const shown = useMemo(() => {
    const query = filter.trim().toLowerCase();
    const directory = getDirectory(client);
    return chats
      .filter(({ isEnded, isLeft }) => !isEnded && !isLeft)
      .filter((chat) => {
        const name = chat.peer === null ? (chat.name ?? "") : directory.get(chat.peer).name;
        return `${name} ${chat.peer ?? ""}`.toLowerCase().includes(query);
      })
      .slice(0, SHOWN_MAX);
  }, [chats, filter, client]);
  return (
    <>
      <TextField
        label={text.chooserFilter}
        isLabelHidden
        type="search"
        placeholder={text.chooserFilter}
        value={filter}
        autoFocus
        onChange={(event) => setFilter(event.target.value)}
      />
      <ul className={styles["list"]}>
        {shown.map((chat) => (
          <li key={chat.id}>
            <Choice
              chat={chat}
              isSelected={selected?.has(chat.id)}
              isDisabled={isDisabled}
              onChoose={(name) => onChoose(chat, name)}
            />
          </li>
        ))}
      </ul>
      {shown.length === 0 && <p className={styles["empty"]}>{text.chooserEmpty}</p>}
    </>
  );
}

interface ChoiceProps {
  chat: Chat;
  isSelected: boolean | undefined;
  isDisabled: boolean;
  onChoose: (name: string) => void;
}

function Choice({ chat, isSelected, isDisabled, onChoose }: ChoiceProps) {
  const name = useChatTitle(chat);
  return (
    <button
      type="button"
      className={styles["choice"]}
      disabled={isDisabled}
      aria-pressed={isSelected}
      onClick={() => onChoose(name)}
    >
      <ChatAvatar chat={chat} size="s" />
      <bdi>{name}</bdi>
      {isSelected === true && <Check size={18} aria-hidden />}
    </button>
  );
}
