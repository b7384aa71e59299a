// Messages between the tabs that share a connection, over a BroadcastChannel.

import type { ChatDescription, Operation, PendingOperation } from "../engine/backend.js";
import type { ChatInfo } from "../generated/frames.js";
import { ChatError } from "../state/errors.js";
import type { Acked, ChatEvent } from "../state/events.js";
import type { Entry, Fields } from "../state/model.js";

/** An error as a cloneable value. */
export interface PlainError {
  code: string;
  message: string;
  isTemporary: boolean;
  retryAfterMs: number | null;
}

/** A published chat. `description` is null if the chat is not loaded. */
export interface ChatUpdate {
  chat: string;
  description: ChatDescription | null;
  pending: PendingOperation[];
  draft: string;
  /** Changed messages of an opened chat. */
  changed?: Entry[];
  /** Seqs of messages that the leader no longer keeps. */
  removed?: number[];
}

/** All chats, without messages. */
export interface Snapshot {
  user: string;
  device: string;
  isOnline: boolean;
  chats: ChatUpdate[];
}

/** The calls of a follower tab: name → arguments and result. */
export interface Calls {
  submit: [args: [Operation], result: Acked | null];
  request: [args: [Fields, number], result: Fields];
  notify: [args: [Fields], result: null];
  setWatched: [args: [string[], boolean], result: null];
  clearChat: [args: [string, number], result: null];
  applyInfo: [args: [ChatInfo], result: null];
  setDraft: [args: [string, string], result: null];
  openChat: [args: [string], result: ChatUpdate];
  snapshot: [args: [], result: Snapshot];
}

/** A message on the channel. */
export type TabMessage =
  | { kind: "leading"; leader: string }
  | { kind: "ended"; error: PlainError }
  | { kind: "closed"; chat: string } // the messages of the chat are no longer published
  | { kind: "call"; from: string; number: number; method: keyof Calls; args: unknown[] }
  | { kind: "answer"; to: string; number: number; result?: unknown; error?: PlainError }
  | {
      kind: "update";
      user: string;
      device: string;
      isOnline: boolean;
      events: unknown[];
      chats: ChatUpdate[];
    };

/** Return an error as a cloneable value. */
export function encodeError(error: unknown): PlainError {
  if (error instanceof ChatError) {
    const { code, message, isTemporary, retryAfterMs } = error;
    return { code, message, isTemporary, retryAfterMs };
  }
  const text = error instanceof Error ? error.message : String(error);
  return { code: "internal", message: text, isTemporary: false, retryAfterMs: null };
}

/** Return an error from its cloned value. */
export function decodeError(error: PlainError): ChatError {
  const { code, message, isTemporary, retryAfterMs } = error;
  return new ChatError(code, message, { isTemporary, retryAfterMs });
}

/** Return an event as a cloneable value. */
export function encodeEvent(event: ChatEvent): unknown {
  return event.type === "refused" ? { ...event, error: encodeError(event.error) } : event;
}

/** Return an event from its cloned value. */
export function decodeEvent(event: unknown): ChatEvent {
  const cloned = event as ChatEvent;
  if (cloned.type !== "refused") return cloned;
  return { ...cloned, error: decodeError(cloned.error as unknown as PlainError) };
}
