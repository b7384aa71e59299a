// Announces new messages to screen readers. The list itself is not a live region, because scrolling
// also adds rows to it.

import { useRef } from "react";
import { getPlainText } from "../../content/markdown";
import { useObservable } from "../../data/observable";
import { useConversation } from "../model/context";
import { useSenderName } from "../sender_name";

export function Announcer() {
  const { rows, isLive } = useObservable(useConversation().list);
  const stored = rows.findLast(({ unsent, isSystem }) => unsent === null && !isSystem);
  const last = isLive ? stored : undefined;
  const startSeq = useRef<number | null>(null);
  if (last !== undefined) startSeq.current ??= last.message.seq;
  const name = useSenderName(last?.message.sender ?? "");
  const isText = last !== undefined && !last.isOwn && last.message.deleted !== true;
  const isNew = isText && last.message.seq > (startSeq.current ?? Infinity);
  return (
    <div className="visually-hidden" role="status">
      {isNew && `${name}: ${getPlainText(last.message.body)}`}
    </div>
  );
}
