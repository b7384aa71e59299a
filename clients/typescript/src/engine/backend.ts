// The connection of a client: an `Engine` in this tab, or the leader in another tab.

import type { ChatInfo } from "../generated/frames.js";
import type { SavedChat } from "../state/chat.js";
import type { QueuedEvent } from "../state/client_state.js";
import type { Acked, ChatEvent } from "../state/events.js";
import type { Entry, Fields } from "../state/model.js";

/** An operation to send. */
export interface Operation {
  ref: string;
  chat: string;
  fields: Fields;
}

/** An operation in the outbox. */
export interface PendingOperation extends Operation {
  stage: "queued" | "inFlight" | "acked";
  /** The seq of its entry in the chat once it is acked; 0 before. */
  seq: number;
}

/** The description of a chat, without its messages. */
export interface ChatDescription extends Readonly<SavedChat> {
  id: string;
  peer: string | null;
  /** The newest message. */
  last: Entry | null;
  isLeft: boolean;
  /** True if the roles, mutes and settings of a group are loaded. */
  isComplete: boolean;
  shown: number | null;
}

/** The chats that this client has loaded. */
export interface View {
  readonly user: string;
  readonly device: string;
  readonly isOnline: boolean;
  /** Chat ids, most recently active last. */
  listChats(): string[];
  /** Return the description of a chat: the same object until the chat changes. */
  describe(chat: string): ChatDescription | null;
  /** Return the messages of a chat: the same list until a message changes. */
  messages(chat: string): readonly Entry[];
  pending(chat: string): PendingOperation[];
  draft(chat: string): string;
  /** Prepare the messages of a chat for `messages`. */
  openChat(chat: string): void;
}

/** Executes the calls of a client. */
export interface Backend extends View {
  /**
   * Add an operation to the outbox. Adding the same operation again has no effect.
   *
   * Return the ack if the operation is already acked. Otherwise, an event `acked` or `refused`
   * follows.
   */
  submit(operation: Operation): Promise<Acked | null>;
  /** Send a request and return its response, which is also applied to the chats. */
  request(fields: Fields, deadlineS: number): Promise<Fields>;
  /** Send a frame that has no response. */
  notify(fields: Fields): void;
  /** Start or stop presence subscriptions. */
  setWatched(users: string[], isWatched: boolean): void;
  /** Delete the messages of a chat up to seq `upto` from this device. */
  clearChat(chat: string, upto: number): void;
  /** Apply the description of a chat. */
  applyInfo(info: ChatInfo): void;
  /** Save an unsent text. */
  setDraft(chat: string, text: string): void;
}

/** Receives the events and changes of a backend. */
export interface Listener {
  /** Handle events, in order. */
  onEvents(events: QueuedEvent[]): void;
  /** Handle changes of chats. */
  onChange(chats: ReadonlySet<string>): void;
  /** Handle the end of the backend, which does not reconnect. */
  onEnd(error: Error): void;
}

/** Return a queued event without a position in the inbox. */
export function withoutCursor(event: ChatEvent): QueuedEvent {
  return { event, before: null };
}
