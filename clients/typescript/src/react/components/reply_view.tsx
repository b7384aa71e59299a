// The quoted message of a reply.

import type { ReactElement } from "react";

import { useMessages } from "../hooks.js";
import { useTexts } from "../provider.js";

/** Properties of {@link ReplyView}. */
export interface ReplyViewProps {
  chat: string;
  /** Seq of the quoted message. */
  seq: number;
  /** Called on a click; without it, the quote is not a button. */
  onSelect?: (seq: number) => void;
}

/** A quoted message; nothing if it is not loaded. Class: `tierchat-reply`. */
export function ReplyView({ chat, seq, onSelect }: ReplyViewProps): ReactElement | null {
  const { labels, getName } = useTexts();
  const { messages } = useMessages(chat);
  const message = messages.findLast((message) => message.seq === seq);
  if (message === undefined) return null;
  const content = (
    <>
      <strong>{getName(message.sender)}</strong>{" "}
      <span>{message.deleted ? labels.deleted : message.body}</span>
    </>
  );
  return (
    <blockquote className="tierchat-reply" data-seq={seq}>
      {onSelect === undefined ? (
        content
      ) : (
        <button type="button" onClick={() => onSelect(seq)}>
          {content}
        </button>
      )}
    </blockquote>
  );
}
