// Entries of a chat, and frames.

import { CHANGE_KINDS, type Message } from "../generated/frames.js";

/** An entry at one seq of a chat: a message or a change. */
export type Entry = Message;

/** The fields of a frame, as on the wire. */
export type Fields = { type: string; [name: string]: unknown };

const MESSAGE_CHANGE_KINDS: ReadonlySet<string> = new Set(["edit", "delete", "reaction"]);
const SESSION_CHAT = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
/** `muted_until` of a member who was unmuted. */
export const MUTE_ENDED = 1;

/** Return whether an entry changes a message. */
export function isMessageChange(entry: Entry): boolean {
  return MESSAGE_CHANGE_KINDS.has(entry.kind);
}

/** Return whether an entry is a message, not a change. */
export function isMessage(entry: Entry): boolean {
  return !CHANGE_KINDS.has(entry.kind);
}

/** Return whether a chat is a session with an AI companion, by the format of its id. */
export function isSessionChat(chat: string): boolean {
  return SESSION_CHAT.test(chat);
}

/** Return the seq of the last change of a message. */
export function getRev(entry: Entry): number {
  return entry.rev ?? 0;
}

/** Return the tombstone of a message: the message without its content. */
export function buildTombstone(message: Entry, rev: number): Entry {
  const { seq, ts, chat, mid, sender, ref, kind } = message;
  const tombstone: Entry = { seq, ts, chat, mid, sender, ref, kind, body: "", rev, deleted: true };
  if (message.target != null) tombstone.target = message.target;
  if (message.expires_at != null) tombstone.expires_at = message.expires_at;
  return tombstone;
}

/** Apply a change to a message and return the result. A change up to `rev` has no effect. */
export function applyChange(message: Entry, entry: Entry): Entry {
  if (entry.seq <= getRev(message) || message.deleted || entry.deleted) return message;
  switch (entry.kind) {
    case "edit":
      return {
        ...message,
        body: entry.body,
        edited_ts: entry.ts,
        edited_seq: entry.seq,
        rev: entry.seq,
      };
    case "delete":
      return buildTombstone(message, entry.seq);
    case "reaction": {
      const { [entry.sender]: _, ...others } = message.reactions ?? {};
      const reactions = entry.body ? { ...others, [entry.sender]: entry.body } : others;
      return { ...message, reactions, rev: entry.seq };
    }
    default:
      return message;
  }
}

/** Return the message, or a tombstone if it has expired. */
export function applyExpiry(message: Entry, nowS: number): Entry {
  const hasExpired = message.expires_at != null && message.expires_at <= nowS;
  return hasExpired ? buildTombstone(message, getRev(message)) : message;
}

/** A member's read and received marks in a chat. Both only increase. */
export class Marks {
  read = 0;
  received = 0;

  /** Advance the marks; return whether either changed. Read messages count as received. */
  advance(read: number, received: number): boolean {
    const before = [this.read, this.received];
    this.read = Math.max(this.read, read);
    this.received = Math.max(this.received, received, this.read);
    return this.read !== before[0] || this.received !== before[1];
  }
}

/** A position in the user's inbox. */
export interface Cursor {
  epoch: string;
  seq: number;
}

/** Return whether two JSON values are equal. */
export function isEqual(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const names = Object.keys(left);
  if (Array.isArray(a) !== Array.isArray(b) || names.length !== Object.keys(right).length) {
    return false;
  }
  return names.every((name) => name in right && isEqual(left[name], right[name]));
}

/** Return the numbers in ascending order. */
export function sortAscending(numbers: Iterable<number>): number[] {
  return [...numbers].sort((a, b) => a - b);
}
