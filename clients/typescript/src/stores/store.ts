// Storage for the client state, so that messages, drafts and the outbox survive a reload.

import type { SavedChatRecord, SavedOutbox, SavedPosition } from "../state/saved_state.js";

/** The data of one user and device. `place` is the position in the inbox. */
export interface StoredState {
  place: SavedPosition | null;
  chats: SavedChatRecord[];
  outbox: SavedOutbox | null;
  /** Chat → draft. */
  drafts: Record<string, string>;
}

/** Changes to save. Absent fields stay unchanged. */
export interface StoreChanges {
  place?: SavedPosition;
  chats?: SavedChatRecord[];
  removedChats?: string[];
  outbox?: SavedOutbox;
  /** Chat → draft; "" deletes it. */
  drafts?: Record<string, string>;
}

/**
 * Storage for the state of a client. Only one client uses a store at a time.
 *
 * Implement it for other storage, such as SQLite in React Native. All values are JSON.
 */
export interface Store {
  /** Load everything that was saved. */
  load(): Promise<StoredState>;
  /** Save changes atomically. They must be durable when the promise resolves. */
  save(changes: StoreChanges): Promise<void>;
  /** Delete everything, for a logout. */
  delete(): Promise<void>;
  /** Close the store. */
  close(): Promise<void>;
}

/** Return the state with the changes applied. */
export function applyChanges(state: StoredState, changes: StoreChanges): StoredState {
  const chats = new Map(state.chats.map((record) => [record.chat, record]));
  for (const record of changes.chats ?? []) chats.set(record.chat, record);
  for (const chat of changes.removedChats ?? []) chats.delete(chat);
  const drafts = { ...state.drafts, ...changes.drafts };
  return {
    place: changes.place ?? state.place,
    chats: [...chats.values()],
    outbox: changes.outbox ?? state.outbox,
    drafts: Object.fromEntries(Object.entries(drafts).filter(([, text]) => text !== "")),
  };
}

/** Return the state of an empty store. */
export function createEmptyState(): StoredState {
  return { place: null, chats: [], outbox: null, drafts: {} };
}

/** A store in memory, for tests and for clients that are closed and opened again. */
export class MemoryStore implements Store {
  #state = createEmptyState();

  /** Load everything that was saved. */
  load(): Promise<StoredState> {
    return Promise.resolve(structuredClone(this.#state));
  }

  /** Save changes. */
  save(changes: StoreChanges): Promise<void> {
    this.#state = applyChanges(this.#state, structuredClone(changes));
    return Promise.resolve();
  }

  /** Delete everything. */
  delete(): Promise<void> {
    this.#state = createEmptyState();
    return Promise.resolve();
  }

  /** Do nothing: the next client may use the same object. */
  close(): Promise<void> {
    return Promise.resolve();
  }
}
