// Events that a client delivers to the application, in order.
//
// Per chat, each entry is delivered once, in ascending seq without a gap. If entries could not be
// read, `skipped` is delivered first. After a `restarted` in another epoch, entries that no longer
// exist are reported as `entriesWithdrawn`, and their replacements are delivered as new.

import type { ChatError } from "./errors.js";
import type { Cursor, Entry, Fields } from "./model.js";

/** The server accepted the connection; missed events follow. */
export interface Connected {
  type: "connected";
  user: string;
}

/** The connection is closed; the client reconnects automatically after `retryInS` seconds. */
export interface Disconnected {
  type: "disconnected";
  reason: string;
  retryInS: number;
}

/** A message was added. */
export interface MessageAdded {
  type: "messageAdded";
  chat: string;
  message: Entry;
}

/** A message was edited, deleted or reacted to; `message` is null if the client has no copy. */
export interface MessageChanged {
  type: "messageChanged";
  chat: string;
  change: Entry;
  message: Entry | null;
}

/** The user deleted messages for themselves, on this device or another. */
export interface MessagesHidden {
  type: "messagesHidden";
  chat: string;
  seqs: number[];
}

/** `change.user` joined, left or has a new role. `change.role` is "" if the user left. */
export interface MemberChanged {
  type: "memberChanged";
  chat: string;
  change: Entry;
}

/** A chat is new, or its name or settings changed. `change` is the entry, if there is one. */
export interface ChatChanged {
  type: "chatChanged";
  chat: string;
  change: Entry | null;
}

/** Message `change.target` was pinned or unpinned: `change.kind` is "pin" or "unpin". */
export interface PinsChanged {
  type: "pinsChanged";
  chat: string;
  change: Entry;
}

/** A member's read or received mark in a chat advanced, except by sending a message. */
export interface Marked {
  type: "marked";
  chat: string;
  user: string;
  read: number;
  received: number;
}

/** A signal: typing or presence, never stored. `fields` are the frame's other fields. */
export interface SignalReceived {
  type: "signalReceived";
  kind: string;
  sender: string;
  chat: string | null;
  fields: Record<string, unknown>;
}

/**
 * An AI companion's response to message `seq` grew by `added`; `text` is the text so far.
 *
 * `end` is empty until the response ends. The complete response also arrives as `messageAdded`. A
 * new `turn` (response id) for the same message replaces the text. `tool` is the tool in use.
 */
export interface ResponseUpdated {
  type: "responseUpdated";
  chat: string;
  seq: number;
  turn: string;
  added: string;
  text: string;
  end: string;
  tool: string;
}

/** The operation with this `ref` is committed. Delivered once for each ref. */
export interface Acked {
  type: "acked";
  ref: string;
  chat: string;
  seq: number;
  ts: number;
  mid: string;
  dup: boolean;
  durability: string;
}

/** The operation with this `ref` was refused and will not be retried. */
export interface Refused {
  type: "refused";
  ref: string;
  chat: string;
  error: ChatError;
}

/** The user's messages to the chat up to this seq are stored in DynamoDB. */
export interface StoredUpto {
  type: "storedUpto";
  chat: string;
  seq: number;
}

/**
 * The chat list was reloaded from a snapshot, after a long time offline or data loss in Redis.
 *
 * `chats` lists the chats whose entries were never delivered; load these with `history`.
 */
export interface Restarted {
  type: "restarted";
  isNewEpoch: boolean;
  chats: string[];
}

/** Entries after seq `after`, up to `upto`, are not delivered: too many, or unreadable. */
export interface Skipped {
  type: "skipped";
  chat: string;
  after: number;
  upto: number;
}

/** Delivered entries that no longer exist: Redis lost them before they were stored. */
export interface EntriesWithdrawn {
  type: "entriesWithdrawn";
  chat: string;
  seqs: number[];
  after: number;
}

/** An event of a client. */
export type ChatEvent =
  | Connected
  | Disconnected
  | MessageAdded
  | MessageChanged
  | MessagesHidden
  | MemberChanged
  | ChatChanged
  | PinsChanged
  | Marked
  | SignalReceived
  | ResponseUpdated
  | Acked
  | Refused
  | StoredUpto
  | Restarted
  | Skipped
  | EntriesWithdrawn;

/** The event with this `type`. */
export type EventOf<Type extends ChatEvent["type"]> = Extract<ChatEvent, { type: Type }>;

/** Return a listener that passes only events of one type on. */
export function filterEvents<Type extends ChatEvent["type"]>(
  type: Type,
  listener: (event: EventOf<Type>) => void,
): (event: ChatEvent) => void {
  return (event) => {
    if (event.type === type) listener(event as EventOf<Type>);
  };
}

/** An event for the application. After a restart from cursor `before`, it is delivered again. */
export interface QueuedEvent {
  event: ChatEvent;
  before: Cursor | null;
}

/** Return the chat that an event changes; null if it changes none, such as a signal. */
export function findChangedChat(event: ChatEvent): string | null {
  const isSignal = event.type === "signalReceived" || event.type === "responseUpdated";
  return !isSignal && "chat" in event ? event.chat : null;
}

/** Return the event of a `signal` frame. */
export function parseSignal(frame: Fields): SignalReceived {
  const { type: _, kind, from, chat, ...fields } = frame;
  const sender = String(from || fields["user"] || "");
  const chatId = typeof chat === "string" ? chat : null;
  return { type: "signalReceived", kind: String(kind), sender, chat: chatId, fields };
}
