// The messages of a chat.

import type { ReactElement, ReactNode } from "react";
import { memo, useCallback, useEffect, useLayoutEffect, useRef } from "react";

import type { PendingOperation } from "../../engine/backend.js";
import type { Message } from "../../generated/frames.js";
import { useChat, useConnection, useMessages, useTyping } from "../hooks.js";
import type { FailedOperation } from "../message_window.js";
import { useClient, useTexts } from "../provider.js";
import { ReplyView } from "./reply_view.js";

const NEAR_PX = 80; // maximum distance from an end that counts as at the end

/** Properties of {@link MessageList}. */
export interface MessageListProps {
  chat: string;
  /** Content of a message; by default its sender, the quoted message, its text and reactions. */
  renderMessage?: (message: Message) => ReactNode;
  /** Mark visible messages as read; true by default. */
  marksRead?: boolean;
}

/**
 * The messages of a chat, in an element that scrolls. Set its height.
 *
 * It stays at the newest message, loads older messages at the top, and keeps the scroll position
 * meanwhile. It renders all loaded messages; for very long chats use a virtual list and
 * `useMessages`.
 * Classes: `tierchat-messages`, and `tierchat-message` with `data-own`, `data-state` (pending,
 * failed, sent, received, read) and `data-deleted`.
 */
export function MessageList(props: MessageListProps): ReactElement {
  return <Messages key={props.chat} {...props} />;
}

function Messages(props: MessageListProps): ReactElement {
  const { chat: id, renderMessage, marksRead = true } = props;
  const client = useClient();
  const { labels, getName } = useTexts();
  const { messages, pending, failed, hasOlder, isLoading, loadOlder } = useMessages(id);
  const chat = useChat(id);
  const container = useRef<HTMLDivElement>(null);
  const scroll = useRef({ isAtEnd: true, fromEnd: 0 });
  const typing = useTyping(id);

  // Keep the distance from the end, so that nothing moves when older messages are added above.
  useLayoutEffect(() => {
    const element = container.current;
    if (element === null) return;
    const { isAtEnd, fromEnd } = scroll.current;
    element.scrollTop = element.scrollHeight - (isAtEnd ? 0 : fromEnd);
  }, [messages[0], isLoading]);
  useLayoutEffect(() => {
    const element = container.current;
    if (element !== null && scroll.current.isAtEnd) element.scrollTop = element.scrollHeight;
  });

  const newest = messages.at(-1)?.seq ?? 0;
  const { isOnline } = useConnection();
  const markRead = useCallback(() => {
    const isSeen = document.visibilityState === "visible" && scroll.current.isAtEnd;
    if (!marksRead || !isSeen || newest <= client.chat(id).read || !client.isOnline) return;
    client
      .chat(id)
      .markRead(newest)
      .catch(() => {}); // retried with the next message
  }, [client, id, newest, marksRead]);
  useEffect(() => {
    if (isOnline) markRead();
    document.addEventListener("visibilitychange", markRead);
    return () => document.removeEventListener("visibilitychange", markRead);
  }, [markRead, isOnline]);

  const onScroll = (): void => {
    const element = container.current;
    if (element === null) return;
    const { scrollTop, scrollHeight, clientHeight } = element;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    scroll.current = { isAtEnd, fromEnd: scrollHeight - scrollTop };
    if (scrollTop < NEAR_PX && hasOlder && !isLoading) void loadOlder();
    markRead();
  };

  const marks = Object.entries(chat.marks).filter(([user]) => user !== client.user);
  const readUpto = Math.max(0, ...marks.map(([, [read]]) => read));
  const receivedUpto = Math.max(0, ...marks.map(([, [, received]]) => received));
  const getState = (message: Message): string | undefined => {
    if (message.sender !== client.user) return undefined;
    if (message.seq <= readUpto) return "read";
    return message.seq <= receivedUpto ? "received" : "sent";
  };
  return (
    <div
      className="tierchat-messages"
      ref={container}
      onScroll={onScroll}
      tabIndex={0}
      role="log"
      aria-label={labels.messages}
      aria-busy={isLoading}
    >
      {hasOlder && messages.length > 0 && (
        <button type="button" disabled={isLoading} onClick={() => void loadOlder()}>
          {labels.loadOlder}
        </button>
      )}
      {messages.length === 0 && pending.length === 0 && !isLoading && (
        <p className="tierchat-empty">{labels.noMessages}</p>
      )}
      {messages.map((message) => (
        <MessageRow
          key={message.seq}
          message={message}
          state={getState(message)}
          render={renderMessage}
        />
      ))}
      {pending.filter(isSend).map(({ ref, fields }) => (
        <article key={ref} className="tierchat-message" data-own data-state="pending">
          <p>{String(fields["body"])}</p>
        </article>
      ))}
      {failed.map((operation) => (
        <FailedRow key={operation.ref} operation={operation} />
      ))}
      {typing.length > 0 && <p className="tierchat-typing">{labels.typing(typing.map(getName))}</p>}
    </div>
  );
}

function isSend({ fields }: PendingOperation): boolean {
  return fields.type === "send";
}

interface MessageRowProps {
  message: Message;
  state: string | undefined;
  render: ((message: Message) => ReactNode) | undefined;
}

const MessageRow = memo(function MessageRow(props: MessageRowProps): ReactElement {
  const { message, state, render } = props;
  const isOwn = state !== undefined;
  return (
    <article
      className="tierchat-message"
      data-seq={message.seq}
      data-own={isOwn || undefined}
      data-state={state}
      data-deleted={message.deleted || undefined}
    >
      {render === undefined ? <Content message={message} isOwn={isOwn} /> : render(message)}
    </article>
  );
});

function Content({ message, isOwn }: { message: Message; isOwn: boolean }): ReactElement {
  const { labels, getName } = useTexts();
  if (message.deleted) return <p>{labels.deleted}</p>;
  const reactions = Object.values(message.reactions ?? {});
  const sentAt = new Date(message.ts / 1000);
  return (
    <>
      {!isOwn && <strong>{getName(message.sender)}</strong>}
      {message.reply_to != null && <ReplyView chat={message.chat} seq={message.reply_to} />}
      <p>{message.body}</p>
      {message.attachments?.map(({ id, name }) => (
        <span key={id} data-file={id}>
          {name}
        </span>
      ))}
      {reactions.length > 0 && <span className="tierchat-reactions">{reactions.join(" ")}</span>}
      <time dateTime={sentAt.toISOString()}>
        {sentAt.toLocaleTimeString([], { timeStyle: "short" })}
      </time>
    </>
  );
}

function FailedRow({ operation }: { operation: FailedOperation }): ReactElement {
  const { labels } = useTexts();
  return (
    <article className="tierchat-message" data-own data-state="failed">
      <p>{String(operation.fields["body"] ?? "")}</p>
      <small role="alert">{operation.error.message}</small>
      <button type="button" onClick={operation.retry}>
        {labels.retry}
      </button>
      <button type="button" onClick={operation.discard}>
        {labels.discard}
      </button>
    </article>
  );
}
