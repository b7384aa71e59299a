// The chat list.

import { memo, type ReactElement, type ReactNode } from "react";

import type { Chat } from "../../client/chat.js";
import { useChatList } from "../hooks.js";
import { useTexts } from "../provider.js";

/** Properties of {@link ChatList}. */
export interface ChatListProps {
  /** The open chat. */
  current?: string | null;
  onSelect: (id: string) => void;
  /** Content of a row; by default the title, the newest message and the unread count. */
  renderChat?: (chat: Chat) => ReactNode;
}

/** The user's chats as buttons. Classes: `tierchat-chats`, `tierchat-chat`. */
export function ChatList({ current, onSelect, renderChat }: ChatListProps): ReactElement {
  const { chats, hasMore, isLoading, loadMore } = useChatList();
  const { labels } = useTexts();
  return (
    <nav className="tierchat-chats" aria-label={labels.chats} aria-busy={isLoading}>
      {chats.length === 0 && !isLoading && <p className="tierchat-empty">{labels.noChats}</p>}
      <ul>
        {chats.map((chat) => (
          <li key={chat.id}>
            <Row chat={chat} isOpen={chat.id === current} {...{ onSelect, renderChat }} />
          </li>
        ))}
      </ul>
      {hasMore && chats.length > 0 && (
        <button type="button" disabled={isLoading} onClick={() => void loadMore()}>
          …
        </button>
      )}
    </nav>
  );
}

interface RowProps {
  chat: Chat;
  isOpen: boolean;
  onSelect: (id: string) => void;
  renderChat: ((chat: Chat) => ReactNode) | undefined;
}

const Row = memo(function Row({ chat, isOpen, onSelect, renderChat }: RowProps): ReactElement {
  return (
    <button
      type="button"
      className="tierchat-chat"
      data-chat={chat.id}
      data-kind={chat.kind}
      data-unread={chat.unread > 0 || undefined}
      aria-current={isOpen || undefined}
      onClick={() => onSelect(chat.id)}
    >
      {renderChat === undefined ? <Summary chat={chat} /> : renderChat(chat)}
    </button>
  );
});

function Summary({ chat }: { chat: Chat }): ReactElement {
  const { labels, getName } = useTexts();
  const title = chat.name ?? (chat.peer === null ? chat.id : getName(chat.peer));
  return (
    <>
      <strong>{title}</strong> <span>{chat.lastMessage?.body ?? ""}</span>
      {chat.unread > 0 && (
        <b role="img" aria-label={labels.unread(chat.unread)}>
          {chat.unread}
        </b>
      )}
    </>
  );
}
