// The corner of a message bubble: the time, and the status of the user's own messages.

import { Check, CheckCheck, CircleAlert, Clock, type LucideIcon } from "lucide-react";
import { getDirectory } from "../../directory/directory";
import { type Catalog, useText } from "../../i18n";
import { formatDateTime, formatList, formatTime } from "../../i18n/format";
import { useConversation } from "../model/context";
import type { ConversationModel } from "../model/conversation_model";
import type { Row, SendStatus } from "../model/rows";
import styles from "./MessageRow.module.css";

const READERS_MAX = 6;
const ICONS: Record<SendStatus, LucideIcon> = {
  pending: Clock,
  sent: Check,
  received: CheckCheck,
  read: CheckCheck,
  failed: CircleAlert,
};

/** Return a text as wide as the corner, with an em space in place of the icon. */
export function buildTailText(row: Row, words: Catalog["conversation"]): string {
  const icon = row.status === null ? "" : "\u2003\u2009";
  return `${getNote(row, words)}${formatTime(row.message.ts / 1000)}${icon}`;
}

/** Return the text of the corner for screen readers, with the status in words. */
export function buildMetaText(row: Row, words: Catalog["conversation"]): string {
  const time = formatTime(row.message.ts / 1000);
  return `${getNote(row, words)}${time}${row.status === null ? "" : ` ${words[row.status]}`}`;
}

/** Return the note before the time: "edited", or how an AI response ended. */
function getNote({ message }: Row, words: Catalog["conversation"]): string {
  const { edited_ts: editedTs, deleted, ai } = message;
  if (deleted === true) return "";
  if (editedTs != null && editedTs > 0) return `${words.edited} `;
  const end = ai?.end ?? "";
  return end in words.ends ? `${words.ends[end as keyof typeof words.ends]} ` : "";
}

interface MessageMetaProps {
  row: Row;
  /** The direction of the last line of text, which the corner follows. */
  dir?: "ltr" | "rtl" | undefined;
}

export function MessageMeta({ row, dir }: MessageMetaProps) {
  const words = useText().conversation;
  const model = useConversation();
  const { status, message } = row;
  const timeMs = message.ts / 1000;
  const readers = status === "read" ? listReaders(model, message.seq) : [];
  const state = readers.length > 0 ? words.readBy(formatList(readers)) : status && words[status];
  const details = [formatDateTime(timeMs), readers.length > 0 ? state : null];
  const Icon = status === null ? null : ICONS[row.isChanging ? "pending" : status];
  return (
    <span className={styles["meta"]} dir={dir} data-tooltip={details.filter(Boolean).join(" · ")}>
      {getNote(row, words)}
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
function listReaders({ chat, me, client }: ConversationModel, seq: number): string[] {
  if (chat.kind !== "group") return [];
  const users = Object.entries(chat.marks).filter(([user, [read]]) => user !== me && read >= seq);
  const shown = users.slice(0, READERS_MAX).map(([user]) => getDirectory(client).get(user).name);
  return users.length > READERS_MAX ? [...shown, `+${users.length - READERS_MAX}`] : shown;
}
