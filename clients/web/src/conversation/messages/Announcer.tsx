// Reads new messages of others aloud: the list itself is not a live region, because scrolling in it
// adds rows, too.

import { useRef } from "react";
import { usePerson } from "../../app/directory";
import { plainText } from "../../content/markdown";
import { useConversation } from "../model/context";
import { useObservable } from "../model/observable";

export function Announcer() {
  const { rows, isLive } = useObservable(useConversation().list);
  const last = isLive ? rows.findLast(({ unsent, isSystem }) => unsent === null && !isSystem) : null;
  const startSeq = useRef<number | null>(null);
  if (last != null) startSeq.current ??= last.message.seq;
  const person = usePerson(last?.message.sender ?? "");
  const isNew = last != null && !last.isOwn && last.message.seq > (startSeq.current ?? Infinity);
  return (
    <div className="visually-hidden" role="status">
      {isNew && `${person.name}: ${plainText(last.message.body)}`}
    </div>
  );
}
