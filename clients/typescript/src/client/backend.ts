// What a client needs of the connection: an `Engine` in this tab, or the leader in another one.

import type { ChatInfo } from "../generated/frames.js";
import type { Acked, ChatEvent } from "../state/events.js";
import type { Entry, Fields } from "../state/model.js";
import type { SavedChat } from "../state/chat.js";
import type { QueuedEvent } from "../state/state.js";

/** An operation to send. */
export interface Operation {
  ref: string;
  chat: string;
  fields: Fields;
}

/** An operation in the outbox. */
export interface PendingOperation extends Operation {
  stage: "queued" | "inFlight" | "acked";
}

/** Description of a chat, without its messages. */
export interface ChatDescription extends Readonly<SavedChat> {
  id: string;
  peer: string | null;
  /** The newest message. */
  last: Entry | null;
  isLeft: boolean;
  /** Roles, mutes and settings of a group are known. */
  isComplete: boolean;
  shown: number | null;
}

/** The state of all chats, as far as this client has it. */
export interface View {
  readonly user: string;
  readonly device: string;
  readonly isOnline: boolean;
  /** Chat ids, most recently active last. */
  listChats(): string[];
  /** Return the same object until the chat changes. */
  describe(chat: string): ChatDescription | null;
  /** Return the same list until a message changes. */
  messages(chat: string): readonly Entry[];
  pending(chat: string): PendingOperation[];
  draft(chat: string): string;
  /** Make the messages of a chat available. */
  openChat(chat: string): void;
}

/** Carries out the calls of a client. */
export interface Backend extends View {
  /**
   * Put an operation into the outbox. The same operation again has no effect.
   *
   * Return its ack if it was acked before; otherwise an event `acked` or `refused` follows.
   */
  submit(operation: Operation): Promise<Acked | null>;
  /** Send a request and return its answer, which is also applied to the chats. */
  request(fields: Fields, deadlineS: number): Promise<Fields>;
  /** Send a frame that has no answer. */
  notify(fields: Fields): void;
  /** Start or stop presence subscriptions. */
  watch(users: string[], isOn: boolean): void;
  /** Forget the messages of a chat up to seq `upto`. */
  clear(chat: string, upto: number): void;
  /** Apply the description of a chat. */
  applyInfo(info: ChatInfo): void;
  /** Keep an unsent text. */
  setDraft(chat: string, text: string): void;
}

/** Gets what a backend delivers. */
export interface Listener {
  /** Events in order. With `cursor`s they can be repeated after a restart. */
  onEvents(events: QueuedEvent[]): void;
  /** These chats changed. */
  onChange(chats: ReadonlySet<string>): void;
  /** The backend has ended and will not reconnect. */
  onEnd(error: Error): void;
}

/** An event without a position in the inbox. */
export function withoutCursor(event: ChatEvent): QueuedEvent {
  return { event, before: null };
}
