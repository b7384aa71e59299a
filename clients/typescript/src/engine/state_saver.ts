// Saves the state of a client: operations before they are sent, the position soon after a change.

import type { ClientState } from "../state/client_state.js";
import { buildOutbox, buildPosition, findFirstSeqs, saveChat } from "../state/saved_state.js";
import type { StoreChanges } from "../stores/store.js";
import type { EventQueue } from "./event_queue.js";
import type { ClientOptions } from "./options.js";

const SAVE_MS = 300;
const STORED_ENTRIES_MAX = 200;

/** Writes one client's state to its store. One save runs at a time. */
export class StateSaver {
  /** True if an operation is not in the store yet. */
  hasNewOperations = false;
  readonly #options: ClientOptions;
  readonly #state: ClientState;
  readonly #queue: EventQueue;
  readonly #onError: (error: Error) => void;
  #changed = new Set<string>();
  #storedChats = new Set<string>();
  #drafts: Record<string, string> = {};
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(
    options: ClientOptions,
    state: ClientState,
    queue: EventQueue,
    onError: (error: Error) => void,
  ) {
    this.#options = options;
    this.#state = state;
    this.#queue = queue;
    this.#onError = onError;
  }

  /** Record the chats that the store has. */
  setStoredChats(chats: Iterable<string>): void {
    this.#storedChats = new Set(chats);
  }

  /** Schedule a save of chats and of the position. */
  markChanged(chats: Iterable<string>): void {
    if (this.#options.store === undefined) return;
    for (const chat of chats) this.#changed.add(chat);
    this.#timer ??= setTimeout(() => void this.save().catch(this.#onError), SAVE_MS);
  }

  /** Schedule a save of an unsent text. */
  setDraft(chat: string, text: string): void {
    this.#drafts[chat] = text;
    this.markChanged([]);
  }

  /** Save all changes, and wait until they are durable. */
  save(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#running = this.#running.catch(() => {}).then(() => this.#saveNow());
    return this.#running;
  }

  async #saveNow(): Promise<void> {
    this.hasNewOperations = false;
    const { store } = this.#options;
    if (store === undefined) return;
    const drafts = this.#drafts;
    this.#drafts = {};
    await store.save({ ...this.#buildChanges(), drafts });
  }

  #buildChanges(): StoreChanges {
    const { unconsumed } = this.#queue;
    const outbox = buildOutbox(this.#state, unconsumed);
    const firstSeqs = findFirstSeqs(this.#state, unconsumed);
    // The saved position stays: after a restart from a new one, an unconsumed event would be lost.
    if (firstSeqs === null || this.#state.cursor === null) return { outbox };
    const entriesMax = this.#options.storedEntriesMax ?? STORED_ENTRIES_MAX;
    const { chats: all } = this.#state;
    const loaded = [...this.#changed].map((name) => all.get(name));
    const changed = loaded.filter((chat) => chat !== undefined);
    const chats = changed.map((chat) => saveChat(this.#state, chat, firstSeqs, entriesMax));
    const removedChats = [...this.#storedChats, ...this.#changed].filter((name) => !all.has(name));
    this.#storedChats = new Set(all.keys());
    this.#changed = new Set(firstSeqs.keys()); // saved again when their events are consumed
    return { outbox, place: buildPosition(this.#state, unconsumed), chats, removedChats };
  }

  /** Save everything and close the store. */
  async close(): Promise<void> {
    await this.save();
    clearTimeout(this.#timer);
    await this.#options.store?.close();
  }
}
