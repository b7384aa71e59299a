// The time of a message and the status of the user's own, in the corner of its bubble.

import { Check, CheckCheck, CircleAlert, Clock, type LucideIcon } from "lucide-react";
import { directoryOf } from "../../app/directory";
import { useText, type Catalog } from "../../i18n";
import { formatDateTime, formatList, formatTime } from "../../i18n/format";
import { useConversation } from "../model/context";
import type { ConversationModel } from "../model/conversation_model";
import styles from "./MessageRow.module.css";
import type { Row, SendStatus } from "../model/rows";

const READERS_MAX = 6;
const ICONS: Record<SendStatus, LucideIcon> = {
  pending: Clock,
  sent: Check,
  received: CheckCheck,
  read: CheckCheck,
  failed: CircleAlert,
};

/** Return a text as wide as the corner: the icon is as wide as an em space. */
export function tailText(row: Row, words: Catalog["conversation"]): string {
  const edited = isEdited(row) ? `${words.edited} ` : "";
  const icon = row.status === null ? "" : "\u2003\u2009";
  return `${edited}${formatTime(row.message.ts / 1000)}${icon}`;
}

/** Return the text of the corner with the status in words, for screen readers. */
export function metaText(row: Row, words: Catalog["conversation"]): string {
  const time = formatTime(row.message.ts / 1000);
  const edited = isEdited(row) ? `${words.edited} ` : "";
  return `${edited}${time}${row.status === null ? "" : ` ${words[row.status]}`}`;
}

function isEdited({ message }: Row): boolean {
  return message.edited_ts != null && message.edited_ts > 0 && message.deleted !== true;
}

export function MessageMeta({ row }: { row: Row }) {
  const words = useText().conversation;
  const model = useConversation();
  const { status, message } = row;
  const timeMs = message.ts / 1000;
  const readers = status === "read" ? readersOf(model, message.seq) : [];
  const state = readers.length > 0 ? words.readBy(formatList(readers)) : status && words[status];
  const about = [formatDateTime(timeMs), readers.length > 0 ? state : null];
  const Icon = status === null ? null : ICONS[row.isChanging ? "pending" : status];
  return (
    <span className={styles["meta"]} data-tooltip={about.filter(Boolean).join(" · ")}>
      {isEdited(row) && `${words.edited} `}
      {formatTime(timeMs)}
      {Icon !== null && state !== null && (
        <Icon
          size={15}
          role="img"
          aria-label={state}
          data-status={row.isChanging ? "pending" : status}
        />
      )}
    </span>
  );
}

/** Return the names of the group's members who have read a message. */
function readersOf({ chat, me, client }: ConversationModel, seq: number): string[] {
  if (chat.kind !== "group") return [];
  const users = Object.entries(chat.marks).filter(([user, [read]]) => user !== me && read >= seq);
  const shown = users.slice(0, READERS_MAX).map(([user]) => directoryOf(client).get(user).name);
  return users.length > READERS_MAX ? [...shown, `+${users.length - READERS_MAX}`] : shown;
}
