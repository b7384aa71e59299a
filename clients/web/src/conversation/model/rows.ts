// The rows of a conversation: messages with layout details, such as the day above them.

import type { Message, PendingOperation } from "tierchat";
import { getNowMs } from "../../i18n/format";
import { isSystem } from "./message_window";
import { parseUnsent, type Unsent } from "./unsent";

const SERIES_MS = 5 * 60_000;

/** The state of one of the user's own messages. */
export type SendStatus = "pending" | "sent" | "received" | "read" | "failed";

/** A row of the list. A row is the same object until its content changes. */
export interface Row {
  readonly key: string;
  readonly message: Message;
  readonly unsent: Unsent | null;
  readonly isOwn: boolean;
  readonly isSystem: boolean;
  /** True for the first and the last message of a series by one sender. */
  readonly isFirst: boolean;
  readonly isLast: boolean;
  /** The start of the day in Unix milliseconds if this is the first row of a day, else null. */
  readonly dayMs: number | null;
  /** True for the first message that was unread when the chat was opened. */
  readonly isUnreadStart: boolean;
  readonly status: SendStatus | null;
  /** The number of members who have read this message, if it is the user's. */
  readonly readers: number;
  /** True while an edit, deletion or reaction of the user is pending. */
  readonly isChanging: boolean;
}

/** Inputs of the rows, besides the messages. */
export interface RowContext {
  me: string;
  /** User → [read, received]. */
  marks: Readonly<Record<string, readonly [number, number]>>;
  /** The read mark when the chat was opened; null: no divider. */
  unreadAfter: number | null;
  pending: readonly PendingOperation[];
  failed: readonly Unsent[];
}

/** Builds the rows of a list; reuses the rows of the last build that have not changed. */
export class RowBuilder {
  #rows = new Map<string, Row>();
  readonly #pending = new Map<string, Unsent>(); // by ref
  readonly #drafts = new WeakMap<Unsent, Message>();

  build(entries: readonly Message[], isLive: boolean, context: RowContext): readonly Row[] {
    const { me, pending, failed, unreadAfter } = context;
    const pendingChanges = collectChanges(pending, me);
    const refs = new Set<string>();
    for (const { sender, ref } of entries) if (sender === me) refs.add(ref);
    const unsent = isLive
      ? [...failed, ...this.#listUnsent(pending)].filter(({ ref }) => !refs.has(ref))
      : [];
    unsent.sort((a, b) => a.tsMs - b.tsMs);
    const unsentRows = unsent.map((send) => this.#getUnsentRow(send, me));
    const all = [...entries.map((message) => ({ message, unsent: null })), ...unsentRows];
    const others = Object.entries(context.marks).filter(([user]) => user !== me);
    const reads = others.map(([, [read]]) => read).sort((a, b) => a - b);
    const receivedUpto = Math.max(0, ...others.map(([, [, received]]) => received));
    let unreadBy = 0; // members who have not read the message; never decreases
    const next = new Map<string, Row>();
    let hasUnreadStart = unreadAfter === null;
    const rows = all.map(({ message, unsent }, index) => {
      const before = all[index - 1]?.message;
      const after = all[index + 1]?.message;
      const isOwn = message.sender === me;
      const isUnreadStart = !hasUnreadStart && !isOwn && message.seq > (unreadAfter ?? 0);
      hasUnreadStart ||= isUnreadStart;
      const day = getDayStart(message.ts / 1000);
      const changes = pendingChanges.get(message.seq);
      while ((reads[unreadBy] ?? Infinity) < message.seq) unreadBy += 1;
      const readers = isOwn ? reads.length - unreadBy : 0;
      const row: Row = {
        key: isOwn && message.ref !== "" ? `r:${message.ref}` : `s:${message.seq}`,
        message: changes === undefined ? message : this.#reuse(applyAll(changes, message), message),
        unsent,
        isOwn,
        isSystem: isSystem(message),
        isFirst: isUnreadStart || !isSameSeries(before, message),
        isLast: !isSameSeries(message, after),
        dayMs: before === undefined || getDayStart(before.ts / 1000) !== day ? day : null,
        isUnreadStart,
        status: isOwn ? getStatus(message, unsent, readers, receivedUpto) : null,
        readers,
        isChanging: changes?.some(({ ackedSeq }) => ackedSeq === null) === true,
      };
      const previous = this.#rows.get(row.key);
      const result = previous !== undefined && isSameRow(previous, row) ? previous : row;
      next.set(row.key, result);
      return result;
    });
    this.#rows = next;
    return rows;
  }

  /** Return the message of the last rows if it is equal, so that its row is reused. */
  #reuse(message: Message, original: Message): Message {
    const previous =
      this.#rows.get(`s:${original.seq}`)?.message ?? this.#rows.get(`r:${original.ref}`)?.message;
    const isSame =
      previous !== undefined &&
      previous.seq === message.seq &&
      previous.rev === message.rev &&
      previous.body === message.body &&
      previous.deleted === message.deleted &&
      JSON.stringify(previous.reactions) === JSON.stringify(message.reactions);
    return isSame ? previous : message;
  }

  #listUnsent(pending: readonly PendingOperation[]): Unsent[] {
    const sends = pending.filter(({ fields }) => fields.type === "send");
    const refs = new Set(sends.map(({ ref }) => ref));
    for (const ref of this.#pending.keys()) if (!refs.has(ref)) this.#pending.delete(ref);
    return sends.map(({ ref, fields }) => {
      const unsent = this.#pending.get(ref) ?? parseUnsent(ref, fields, getNowMs(), null);
      this.#pending.set(ref, unsent);
      return unsent;
    });
  }

  #getUnsentRow(unsent: Unsent, me: string): { message: Message; unsent: Unsent } {
    const message = this.#drafts.get(unsent) ?? buildMessage(unsent, me);
    this.#drafts.set(unsent, message);
    return { message, unsent };
  }
}

function buildMessage(unsent: Unsent, me: string): Message {
  const message: Message = {
    seq: Number.MAX_SAFE_INTEGER,
    ts: unsent.tsMs * 1000,
    chat: "",
    mid: "",
    sender: me,
    ref: unsent.ref,
    kind: "text",
    body: unsent.body,
  };
  if (unsent.replyTo !== null) message.reply_to = unsent.replyTo;
  return message;
}

/** A change of a message that the user made. */
interface Change {
  readonly apply: (message: Message) => Message;
  /** The seq of its entry; null while it is not acked. */
  readonly ackedSeq: number | null;
}

/**
 * Return seq → the user's edits, deletions and reactions in the outbox.
 *
 * An acked change may not have arrived as an event yet. Until then, `applyAll` shows it.
 */
function collectChanges(pending: readonly PendingOperation[], me: string): Map<number, Change[]> {
  const changes = new Map<number, Change[]>();
  for (const { fields, stage, seq } of pending) {
    const target = fields["seq"];
    const apply = buildChange(fields as { type: string }, me);
    if (typeof target !== "number" || apply === null) continue;
    const ofMessage = changes.get(target) ?? [];
    ofMessage.push({ apply, ackedSeq: stage === "acked" ? seq : null });
    changes.set(target, ofMessage);
  }
  return changes;
}

function buildChange(fields: { type: string; [name: string]: unknown }, me: string) {
  switch (fields.type) {
    case "edit":
      return (message: Message): Message => ({ ...message, body: String(fields["body"]) });
    case "delete":
      return ({ attachments: _, reactions: __, ...others }: Message): Message => {
        return { ...others, body: "", deleted: true };
      };
    case "react":
      return (message: Message): Message => {
        const { [me]: _, ...others } = message.reactions ?? {};
        const emoji = String(fields["emoji"]);
        return { ...message, reactions: emoji === "" ? others : { ...others, [me]: emoji } };
      };
    default:
      return null;
  }
}

/** Apply the changes that the message does not contain yet. */
function applyAll(changes: readonly Change[], message: Message): Message {
  const missing = changes.filter(({ ackedSeq }) => (ackedSeq ?? Infinity) > (message.rev ?? 0));
  return missing.reduce((changed, { apply }) => apply(changed), message);
}

function getStatus(
  message: Message,
  unsent: Unsent | null,
  readers: number,
  receivedUpto: number,
): SendStatus {
  if (unsent !== null) return unsent.error === null ? "pending" : "failed";
  if (readers > 0) return "read";
  return message.seq <= receivedUpto ? "received" : "sent";
}

/** Return whether two consecutive messages belong to the same series of a sender. */
function isSameSeries(first: Message | undefined, second: Message | undefined): boolean {
  if (first === undefined || second === undefined) return false;
  if (first.sender !== second.sender || isSystem(first) || isSystem(second)) return false;
  const [a, b] = [first.ts / 1000, second.ts / 1000];
  return b - a < SERIES_MS && getDayStart(a) === getDayStart(b);
}

/** Return the start of the local day. */
export function getDayStart(timeMs: number): number {
  return new Date(timeMs).setHours(0, 0, 0, 0);
}

function isSameRow(a: Row, b: Row): boolean {
  return (
    a.message === b.message &&
    a.isFirst === b.isFirst &&
    a.isLast === b.isLast &&
    a.dayMs === b.dayMs &&
    a.isUnreadStart === b.isUnreadStart &&
    a.status === b.status &&
    a.readers === b.readers &&
    a.isChanging === b.isChanging &&
    a.isOwn === b.isOwn &&
    a.unsent === b.unsent
  );
}
