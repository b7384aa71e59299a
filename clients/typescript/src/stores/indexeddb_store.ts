// A store in IndexedDB, for browsers.
//
// Object stores: `records` (keys `place` and `outbox`), `chats` and `drafts` (both by chat id).

import type { SavedChatRecord, SavedOutbox, SavedPosition } from "../state/saved_state.js";
import { createEmptyState, type Store, type StoreChanges, type StoredState } from "./store.js";

const VERSION = 1;
const STORES = ["records", "chats", "drafts"];

/**
 * A store in IndexedDB. `name` is the name of the database; use a separate one for each user.
 *
 * The client bounds its size: see {@link ClientOptions.storedEntriesMax} and `Bounds.chatsMax`.
 */
export class IndexedDbStore implements Store {
  readonly name: string;
  #opened: Promise<IDBDatabase> | null = null;

  constructor(name = "tierchat") {
    this.name = name;
  }

  /** Load everything that was saved. */
  async load(): Promise<StoredState> {
    const transaction = (await this.#open()).transaction(STORES, "readonly");
    const records = transaction.objectStore("records");
    const [place, outbox, chats, draftChats, draftTexts] = await Promise.all([
      toPromise<SavedPosition | undefined>(records.get("place")),
      toPromise<SavedOutbox | undefined>(records.get("outbox")),
      toPromise<SavedChatRecord[]>(transaction.objectStore("chats").getAll()),
      toPromise<IDBValidKey[]>(transaction.objectStore("drafts").getAllKeys()),
      toPromise<string[]>(transaction.objectStore("drafts").getAll()),
    ]);
    const drafts = draftChats.map((chat, index) => [String(chat), draftTexts[index] ?? ""]);
    const loaded = { place: place ?? null, chats, outbox: outbox ?? null };
    return { ...createEmptyState(), ...loaded, drafts: Object.fromEntries(drafts) };
  }

  /** Save changes in one transaction. */
  async save(changes: StoreChanges): Promise<void> {
    const database = await this.#open();
    // An operation must be on disk before it is sent; a position may be lost in a crash.
    const durability = changes.outbox === undefined ? "relaxed" : "strict";
    const transaction = database.transaction(STORES, "readwrite", { durability });
    const records = transaction.objectStore("records");
    if (changes.place !== undefined) records.put(changes.place, "place");
    if (changes.outbox !== undefined) records.put(changes.outbox, "outbox");
    const chats = transaction.objectStore("chats");
    for (const record of changes.chats ?? []) chats.put(record);
    for (const chat of changes.removedChats ?? []) chats.delete(chat);
    const drafts = transaction.objectStore("drafts");
    for (const [chat, text] of Object.entries(changes.drafts ?? {})) {
      if (text === "") drafts.delete(chat);
      else drafts.put(text, chat);
    }
    await new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
  }

  /** Delete all data. */
  async delete(): Promise<void> {
    const transaction = (await this.#open()).transaction(STORES, "readwrite");
    await Promise.all(STORES.map((store) => toPromise(transaction.objectStore(store).clear())));
    await this.close();
  }

  /** Close the database. */
  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = null;
    (await opened)?.close();
  }

  #open(): Promise<IDBDatabase> {
    if (this.#opened === null) {
      const request = indexedDB.open(this.name, VERSION);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("records");
        request.result.createObjectStore("chats", { keyPath: "chat" });
        request.result.createObjectStore("drafts");
      };
      this.#opened = toPromise(request);
    }
    return this.#opened;
  }
}

function toPromise<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
