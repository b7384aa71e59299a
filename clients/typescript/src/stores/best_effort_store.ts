// A store that may fail: browsers refuse storage in private windows, with blocked site data or a
// full disk, and a database may never open.

import { createEmptyState, type Store, type StoreChanges, type StoredState } from "./store.js";

const TIMEOUT_MS = 10_000;

/**
 * Saves the state in another store until that fails or does not respond; then, the client continues
 * in memory, and messages that are not sent yet are lost when it is closed.
 *
 * `onFailure` is called once. After a failed save, the store is deleted if possible, because its
 * outbox may contain operations that were sent since.
 */
export class BestEffortStore implements Store {
  readonly #store: Store;
  readonly #onFailure: (error: Error) => void;
  readonly #timeoutMs: number;
  #hasFailed = false;

  constructor(store: Store, onFailure: (error: Error) => void, timeoutMs = TIMEOUT_MS) {
    this.#store = store;
    this.#onFailure = onFailure;
    this.#timeoutMs = timeoutMs;
  }

  /** Load everything that was saved; nothing after a failure. */
  async load(): Promise<StoredState> {
    return (await this.#attempt(() => this.#store.load())) ?? createEmptyState();
  }

  /** Save changes; a no-op after a failure. */
  async save(changes: StoreChanges): Promise<void> {
    if (this.#hasFailed) return;
    await this.#attempt(() => this.#store.save(changes));
    if (this.#hasFailed) void this.#deleteQuietly();
  }

  /** Delete everything. */
  async delete(): Promise<void> {
    await this.#attempt(() => this.#store.delete());
  }

  /** Close the store. */
  async close(): Promise<void> {
    await this.#attempt(() => this.#store.close());
  }

  async #deleteQuietly(): Promise<void> {
    try {
      await this.#store.delete();
    } catch {
      // The next start resumes from the old state.
    }
  }

  /** Return the result of `call`; undefined if the store fails now or has failed before. */
  async #attempt<T>(call: () => Promise<T>): Promise<T | undefined> {
    if (this.#hasFailed) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<never>((_, reject) => {
      const fail = (): void => reject(new Error("the store does not respond"));
      timer = setTimeout(fail, this.#timeoutMs);
    });
    try {
      return await Promise.race([call(), timeout]);
    } catch (error) {
      if (!this.#hasFailed) {
        this.#hasFailed = true;
        this.#onFailure(error as Error);
      }
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }
}
