// A store in a file, for Node: import it from "tierchat/node".

import { open, readFile, rename, rm } from "node:fs/promises";

import { ChatError } from "../state/errors.js";
import type { Store, StoreChanges, StoredState } from "../stores/store.js";
import { applyChanges, createEmptyState } from "../stores/store.js";

/**
 * A store in a JSON file with mode 0600, for one device. One process uses it at a time.
 *
 * It is intended for bots and command line programs: each save replaces the whole file, so its cost
 * grows with the number of chats.
 */
export class FileStore implements Store {
  readonly path: string;
  #state: StoredState | null = null;

  constructor(path: string) {
    this.path = path;
  }

  /** Load the file; a missing file is an empty store. */
  async load(): Promise<StoredState> {
    let text: string;
    try {
      text = await readFile(this.path, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      this.#state = createEmptyState();
      return this.#state;
    }
    try {
      this.#state = { ...createEmptyState(), ...(JSON.parse(text) as StoredState) };
    } catch (cause) {
      throw new ChatError("internal", `${this.path}: is not a tierchat store`, { cause });
    }
    return structuredClone(this.#state);
  }

  /** Save changes: write a new file, flush it to disk and rename it. */
  async save(changes: StoreChanges): Promise<void> {
    this.#state = applyChanges(this.#state ?? (await this.load()), changes);
    const next = `${this.path}.new`;
    const file = await open(next, "w", 0o600);
    try {
      await file.writeFile(JSON.stringify(this.#state));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(next, this.path);
  }

  /** Delete the file. */
  async delete(): Promise<void> {
    this.#state = createEmptyState();
    await rm(this.path, { force: true });
  }

  /** Do nothing: no file stays open. */
  close(): Promise<void> {
    return Promise.resolve();
  }
}
