// The browser's storage of small values. Browsers refuse it in private windows, with blocked site
// data or a full disk: then values are kept in memory, until the page is closed.
//
// All other modules use storage through this one; a test checks that.

import { Observable } from "./observable";

/** True once this browser has refused to store data of this page. */
export const isStorageRefused = new Observable(false);

const PROBE = "tierchat.probe";

/** One storage of the browser, as strings and JSON. No method throws. */
export class BrowserStorage {
  readonly #open: () => Storage;
  readonly #refused = new Map<string, string>(); // values that the browser did not store

  constructor(open: () => Storage) {
    this.#open = open;
  }

  get(key: string): string | null {
    return this.#refused.get(key) ?? this.#attempt((storage) => storage.getItem(key)) ?? null;
  }

  set(key: string, value: string): void {
    const isStored = this.#attempt((storage) => {
      storage.setItem(key, value);
      return true;
    });
    if (isStored === true) {
      this.#refused.delete(key);
      return;
    }
    this.remove(key); // the old value must not return at the next start
    this.#refused.set(key, value);
  }

  remove(key: string): void {
    this.#refused.delete(key);
    this.#attempt((storage) => storage.removeItem(key));
  }

  keys(): string[] {
    return [...(this.#attempt((storage) => Object.keys(storage)) ?? []), ...this.#refused.keys()];
  }

  /** Return a value that was saved as JSON; null if there is none, or in another format. */
  getJson<T>(key: string): T | null {
    try {
      return JSON.parse(this.get(key) ?? "null") as T | null;
    } catch {
      return null;
    }
  }

  setJson(key: string, value: unknown): void {
    this.set(key, JSON.stringify(value));
  }

  /** Return whether the browser stores values. */
  canStore(): boolean {
    this.set(PROBE, "1");
    const isStored = !this.#refused.has(PROBE);
    this.remove(PROBE);
    return isStored;
  }

  #attempt<T>(use: (storage: Storage) => T): T | undefined {
    try {
      return use(this.#open());
    } catch {
      return undefined;
    }
  }
}

/** Values for all tabs of this browser. */
export const browserStorage = new BrowserStorage(() => localStorage);

/** Values of this tab, until it is closed. */
export const tabStorage = new BrowserStorage(() => sessionStorage);
