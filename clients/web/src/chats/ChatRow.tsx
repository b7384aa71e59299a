// A row of the chat list.

import { BellOff, CheckCheck, Clock, Ellipsis, Pin } from "lucide-react";
import { type MouseEvent, memo, useState } from "react";
import type { Chat, Message } from "tierchat";
import { useClient, useHasDraft, usePreferences, useTyping } from "tierchat/react";
import { Badge, IconButton, Menu, type MenuAnchor } from "../design";
import { ChatAvatar } from "../directory/ChatAvatar";
import { useChatTitle } from "../directory/chat_title";
import { usePerson } from "../directory/directory";
import { useText } from "../i18n";
import { formatShort } from "../i18n/format";
import { Sentence } from "../i18n/Sentence";
import { buildPath, Link } from "../page/router";
import styles from "./ChatRow.module.css";
import { useChatActions, useMuteActions } from "./chat_actions";
import { getPreview, stripMarkdown } from "./message_preview";
import { isMutedChat } from "./preferences";
import { useMessageExpiry } from "./use_message_expiry";

interface ChatRowProps {
  chat: Chat;
  isPinned: boolean;
  isCurrent: boolean;
}

/** A chat with its newest message. */
export const ChatRow = memo(function ChatRow(props: ChatRowProps) {
  const { chat, isPinned, isCurrent } = props;
  const preferences = usePreferences(chat.id);
  const text = useText();
  const title = useChatTitle(chat);
  const [menu, setMenu] = useState<OpenMenu | null>(null);
  const isMuted = isMutedChat(preferences);
  const isMarked = preferences.isMarkedUnread && chat.unread === 0;
  const { lastMessage } = chat;
  useMessageExpiry(lastMessage);
  const openMenu = (event: MouseEvent<HTMLElement>): void => {
    event.preventDefault();
    const isKeyboard = event.button !== 2;
    const anchor = isKeyboard ? event.currentTarget : { x: event.clientX, y: event.clientY };
    setMenu({ kind: "actions", anchor });
  };
  return (
    <>
      <Link
        to={buildPath("/chats/:chat", { chat: chat.id })}
        className={styles["row"]}
        aria-current={isCurrent ? "page" : undefined}
        onContextMenu={openMenu}
      >
        <ChatAvatar chat={chat} hasPresence />
        <span className={styles["text"]}>
          <span className={styles["line"]}>
            <bdi className={styles["title"]}>{title}</bdi>
            {isMuted && <BellOff size={14} aria-label={text.chats.muted} />}
            {lastMessage !== null && (
              <time
                className={styles["time"]}
                dateTime={new Date(lastMessage.ts / 1000).toISOString()}
              >
                {formatShort(lastMessage.ts / 1000)}
              </time>
            )}
          </span>
          <span className={styles["line"]}>
            <Preview chat={chat} message={lastMessage} />
            {isPinned && chat.unread === 0 && !isMarked && (
              <Pin size={14} aria-label={text.chats.pinned} />
            )}
            <Badge count={chat.unread} isQuiet={isMuted} label={text.chats.unread(chat.unread)} />
            {isMarked && (
              <span className={styles["dot"]} role="img" aria-label={text.chats.markedUnread} />
            )}
          </span>
        </span>
      </Link>
      <span className={styles["more"]}>
        <IconButton
          icon={Ellipsis}
          size="s"
          label={text.chats.actions(title)}
          tabIndex={-1}
          aria-haspopup="menu"
          onClick={(event) => setMenu({ kind: "actions", anchor: event.currentTarget })}
        />
      </span>
      {menu?.kind === "actions" && (
        <ActionsMenu
          chat={chat}
          title={title}
          anchor={menu.anchor}
          onMute={() => setMenu({ ...menu, kind: "mute" })}
          onClose={() => setMenu(null)}
        />
      )}
      {menu?.kind === "mute" && (
        <MuteMenu chat={chat} title={title} anchor={menu.anchor} onClose={() => setMenu(null)} />
      )}
    </>
  );
});

interface OpenMenu {
  kind: "actions" | "mute";
  anchor: MenuAnchor;
}

interface RowMenuProps {
  chat: Chat;
  title: string;
  anchor: MenuAnchor;
  onClose: () => void;
}

function ActionsMenu({ chat, title, onMute, ...rest }: RowMenuProps & { onMute: () => void }) {
  const text = useText().chats;
  return <Menu label={text.actions(title)} items={useChatActions(chat, onMute)} {...rest} />;
}

function MuteMenu({ chat, title, ...rest }: RowMenuProps) {
  const text = useText().chats;
  return <Menu label={text.muteTitle(title)} items={useMuteActions(chat)} {...rest} />;
}

function Preview({ chat, message }: { chat: Chat; message: Message | null }) {
  const text = useText();
  const client = useClient();
  const typing = useTyping(chat.id);
  const hasDraft = useHasDraft(chat.id);
  const isGroup = chat.kind === "group";
  const isOwn = message !== null && message.sender === client.user;
  const typist = usePerson(isGroup ? (typing[0] ?? "") : "");
  const sender = usePerson(isGroup && message !== null && !isOwn ? message.sender : "");
  if (typing.length > 0) {
    return (
      <span className={styles["typing"]}>
        {isGroup ? (
          <Sentence text={text.chats.typingUser} names={[typist.name]} />
        ) : (
          text.chats.typing
        )}
      </span>
    );
  }
  if (hasDraft) {
    return (
      <span className={styles["preview"]}>
        <span className={styles["draft"]}>{text.chats.draft} </span>
        <bdi>{stripMarkdown(chat.draft)}</bdi>
      </span>
    );
  }
  const pendingSend = chat.pending.findLast(
    ({ fields, stage }) => fields.type === "send" && stage !== "acked",
  );
  if (pendingSend !== undefined) {
    return (
      <>
        <Clock size={14} aria-label={text.chats.sending} />
        <span className={styles["preview"]}>
          <bdi>{stripMarkdown(String(pendingSend.fields["body"] ?? ""))}</bdi>
        </span>
      </>
    );
  }
  if (message === null) return <span className={styles["preview"]}>{text.chats.noMessages}</span>;
  const prefix = isOwn ? text.chats.you : sender.id === "" ? "" : `${sender.name}:`;
  const isRead = isOwn && !isGroup && (chat.marks[chat.peer ?? ""]?.[0] ?? 0) >= message.seq;
  return (
    <>
      {isRead && <CheckCheck size={14} className={styles["read"]} aria-hidden />}
      <span className={styles["preview"]}>
        {prefix !== "" && <bdi>{prefix} </bdi>}
        <bdi>{getPreview(message, text)}</bdi>
      </span>
    </>
  );
}
