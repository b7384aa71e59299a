// A cache of file contents, as object URLs.
//
// Bounds: `URLS_MAX` files and `BYTES_MAX` bytes. The least recently used files that are not in use
// are evicted.

import type { ChatClient } from "tierchat";

const URLS_MAX = 200;
const BYTES_MAX = 256_000_000;

interface Item {
  url: Promise<string>;
  bytes: number;
  users: number;
}

/** Identifies the content of a file or of its thumbnail. */
export interface MediaKey {
  file: string;
  seq: number;
  type: string;
  isThumb: boolean;
}

/** Object URLs of the files of one client. */
export class MediaCache {
  readonly #client: Pick<ChatClient, "download">;
  readonly #items = new Map<string, Item>();

  constructor(client: Pick<ChatClient, "download">) {
    this.#client = client;
  }

  /** Return the URL of a file's content; it stays valid until `release`. */
  acquire(key: MediaKey): Promise<string> {
    const name = nameOf(key);
    let item = this.#items.get(name);
    if (item === undefined) {
      const made: Item = { url: Promise.resolve(""), bytes: 0, users: 0 };
      made.url = this.#load(key, made);
      made.url.catch(() => {
        if (this.#items.get(name) === made) this.#items.delete(name);
      });
      item = made;
    }
    item.users += 1;
    this.#items.delete(name);
    this.#items.set(name, item);
    return item.url;
  }

  /** Put a file that this device has uploaded, also as its thumbnail. */
  put(file: string, content: Blob): void {
    for (const isThumb of [false, true]) {
      const name = nameOf({ file, isThumb });
      const url = Promise.resolve(URL.createObjectURL(content));
      this.#items.set(name, { url, bytes: content.size, users: 0 });
    }
    this.#evict();
  }

  /** Release a URL from `acquire`. */
  release(key: MediaKey): void {
    const item = this.#items.get(nameOf(key));
    if (item !== undefined && item.users > 0) item.users -= 1;
    this.#evict();
  }

  async #load({ file, seq, type, isThumb }: MediaKey, item: Item): Promise<string> {
    const place = seq === 0 ? {} : { seq }; // an unsent file of the user
    const blob = await this.#client.download(file, { ...place, isThumb });
    item.bytes = blob.size;
    this.#evict();
    // Thumbnails are WebP; other files get the type that the server has checked.
    return URL.createObjectURL(new Blob([blob], { type: isThumb ? "image/webp" : type }));
  }

  #evict(): void {
    let bytes = 0;
    for (const item of this.#items.values()) bytes += item.bytes;
    for (const [name, item] of this.#items) {
      if (this.#items.size <= URLS_MAX && bytes <= BYTES_MAX) return;
      if (item.users > 0) continue;
      this.#items.delete(name);
      bytes -= item.bytes;
      item.url.then(URL.revokeObjectURL, () => {});
    }
  }
}

function nameOf({ file, isThumb }: Pick<MediaKey, "file" | "isThumb">): string {
  return `${file}${isThumb ? "#thumb" : ""}`;
}
