// Persistent client state that survives a restart or a reload.
//
// `place` (the position) and `chats` are the state after the last event that the application has
// consumed: the cursor, and the last delivered seq and newest entries of each chat. After a crash,
// an event may be delivered twice, but none is missed. `outbox` is saved before an operation is
// sent, so that a restarted client retries with the same ref.

import type { ChatState, SavedChat } from "./chat.js";
import type { ClientState, QueuedEvent } from "./client_state.js";
import { ChatError } from "./errors.js";
import type { Acked } from "./events.js";
import type { Cursor, Entry, Fields } from "./model.js";
import { createOutboxEntry } from "./outbox.js";

/** The version of the saved format. */
export const SAVED_VERSION = 1;

/** The user, the device and its position in the inbox. */
export interface SavedPosition {
  v: number;
  user: string;
  device: string;
  cursor: Cursor | null;
}

/** One chat: its description, its delivery position and its newest entries. */
export interface SavedChatRecord {
  chat: string;
  info: SavedChat;
  /** Last delivered seq; null: nothing delivered yet. */
  shown: number | null;
  top: number;
  mids: [number, string][];
  /** True if the log was not verified after a new epoch. */
  isSuspect: boolean;
  /** True if a backfill was pending. */
  isWanted: boolean;
  entries: Entry[];
  hidden: number[];
}

/** An operation that the server has not stored yet. */
export interface SavedOperation {
  ref: string;
  chat: string;
  fields: Fields;
  seq: number;
  ts: number;
  mid: string;
  isAcked: boolean;
  /** True if the application has received the ack. */
  isTold: boolean;
}

/** An outcome of an operation that the application has not consumed. */
export type SavedOutcome =
  | Omit<Acked, "type">
  | {
      ref: string;
      chat: string;
      error: { code: string; message: string; temporary: boolean; retryAfterMs: number | null };
    };

/** The outbox, and the outcomes of operations that the application has not consumed. */
export interface SavedOutbox {
  operations: SavedOperation[];
  outcomes: SavedOutcome[];
}

/**
 * Return chat → first seq in the events, or null if an event cannot be delivered again.
 *
 * After null, the previously saved position stays valid; it only repeats more events.
 */
export function findFirstSeqs(
  state: ClientState,
  unconsumed: readonly QueuedEvent[],
): Map<string, number> | null {
  const firstSeqs = new Map<string, number>();
  const addFirst = (chat: string, seq: number): void => {
    if (!firstSeqs.has(chat)) firstSeqs.set(chat, seq);
  };
  for (const { event } of unconsumed) {
    switch (event.type) {
      case "messageAdded":
        addFirst(event.chat, event.message.seq);
        break;
      case "messageChanged":
      case "memberChanged":
      case "pinsChanged":
        addFirst(event.chat, event.change.seq);
        break;
      case "chatChanged":
        if (event.change !== null) addFirst(event.chat, event.change.seq);
        // It may have just become large, and used another cursor before.
        else if (state.getOrCreateChat(event.chat).isLarge) return null;
        break;
      case "restarted":
      case "skipped":
      case "entriesWithdrawn":
        return null; // has no seq: cannot be delivered again
      case "marked":
        if (event.user === state.user) return null; // the previous marker is not kept
        break;
      default:
    }
  }
  return firstSeqs;
}

/** Return the position before the `unconsumed` events. */
export function buildPosition(
  state: ClientState,
  unconsumed: readonly QueuedEvent[],
): SavedPosition {
  const cursor = unconsumed[0] === undefined ? state.cursor : unconsumed[0].before;
  return { v: SAVED_VERSION, user: state.user, device: state.device, cursor };
}

/** Return the record of a chat before its unconsumed events, with its newest entries. */
export function saveChat(
  state: ClientState,
  chat: ChatState,
  firstSeqs: ReadonlyMap<string, number>,
  entriesMax: number,
): SavedChatRecord {
  const { log } = chat;
  const first = firstSeqs.get(chat.id);
  const shown =
    log.shown === null || first === undefined ? log.shown : Math.min(log.shown, first - 1);
  return {
    chat: chat.id,
    info: chat.save(),
    shown,
    top: log.top,
    mids: log.getNewestIdentities(shown ?? 0),
    isSuspect: log.isUnverified,
    isWanted: state.catchUp.isScheduled(chat),
    ...log.saveEntries(shown ?? 0, entriesMax),
  };
}

/** Return the operations that are not stored yet and the outcomes among `unconsumed`. */
export function buildOutbox(state: ClientState, unconsumed: readonly QueuedEvent[]): SavedOutbox {
  const operations = [...state.outbox].map(
    ({ ref, chat, fields, seq, ts, mid, stage, isReported }): SavedOperation => ({
      ...{ ref, chat, fields, seq, ts, mid },
      isAcked: stage === "acked",
      isTold: isReported,
    }),
  );
  const outcomes: SavedOutcome[] = [];
  for (const { event } of unconsumed) {
    if (event.type === "acked") {
      const { type: _, ...outcome } = event;
      outcomes.push(outcome);
    } else if (event.type === "refused") {
      const { code, message, isTemporary: temporary, retryAfterMs } = event.error;
      const error = { code, message, temporary, retryAfterMs };
      outcomes.push({ ref: event.ref, chat: event.chat, error });
    }
  }
  return { operations, outcomes };
}

/** Restore the state that an earlier client saved. */
export function restore(
  state: ClientState,
  position: SavedPosition | null,
  chats: Iterable<SavedChatRecord>,
  outbox: SavedOutbox | null,
): void {
  if (position !== null) {
    state.user = position.user;
    state.device = position.device;
    state.cursor = position.cursor;
    for (const saved of chats) restoreChat(state, saved);
  }
  for (const saved of outbox?.operations ?? []) {
    const entry = createOutboxEntry(saved.ref, saved.chat, saved.fields);
    const { seq, ts, mid, isTold: isReported } = saved;
    // An operation in flight may be committed: retrying the same ref resolves it.
    Object.assign(entry, { seq, ts, mid, isReported, stage: saved.isAcked ? "acked" : "queued" });
    state.outbox.put(entry);
  }
  for (const outcome of outbox?.outcomes ?? []) {
    if ("error" in outcome) {
      const { code, message, temporary: isTemporary, retryAfterMs } = outcome.error;
      const error = new ChatError(code, message, { isTemporary, retryAfterMs });
      state.redeliver([{ type: "refused", ref: outcome.ref, chat: outcome.chat, error }]);
    } else {
      state.redeliver([{ type: "acked", ...outcome }]);
    }
  }
}

function restoreChat(state: ClientState, saved: SavedChatRecord): void {
  const chat = state.getOrCreateChat(saved.chat);
  chat.isLarge = saved.info.isLarge;
  if (saved.shown !== null) {
    chat.log.restore(saved.shown, saved.top, saved.mids);
    chat.log.putCached(saved.entries, saved.hidden);
  }
  chat.restore(saved.info);
  if (saved.isSuspect) chat.markUnverified();
  if (saved.shown !== null) state.catchUp.schedule(chat, saved.isWanted);
}
