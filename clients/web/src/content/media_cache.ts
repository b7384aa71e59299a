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
  useCount: number;
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
    const id = buildKey(key);
    let item = this.#items.get(id);
    if (item === undefined) {
      const created: Item = { url: Promise.resolve(""), bytes: 0, useCount: 0 };
      created.url = this.#load(key, created);
      created.url.catch(() => {
        if (this.#items.get(id) === created) this.#items.delete(id);
      });
      item = created;
    }
    item.useCount += 1;
    this.#items.delete(id);
    this.#items.set(id, item);
    return item.url;
  }

  /** Add a file that this device has uploaded; it also serves as the thumbnail. */
  put(file: string, content: Blob): void {
    for (const isThumb of [false, true]) {
      const id = buildKey({ file, isThumb });
      const url = Promise.resolve(URL.createObjectURL(content));
      this.#items.set(id, { url, bytes: content.size, useCount: 0 });
    }
    this.#evict();
  }

  /** Release a URL from `acquire`. */
  release(key: MediaKey): void {
    const item = this.#items.get(buildKey(key));
    if (item !== undefined && item.useCount > 0) item.useCount -= 1;
    this.#evict();
  }

  async #load({ file, seq, type, isThumb }: MediaKey, item: Item): Promise<string> {
    const message = seq === 0 ? {} : { seq }; // an unsent file of the user
    const blob = await this.#client.download(file, { ...message, isThumb });
    item.bytes = blob.size;
    this.#evict();
    // Thumbnails are WebP. The server has checked the type of other files.
    return URL.createObjectURL(new Blob([blob], { type: isThumb ? "image/webp" : type }));
  }

  #evict(): void {
    let bytes = 0;
    for (const item of this.#items.values()) bytes += item.bytes;
    for (const [id, item] of this.#items) {
      if (this.#items.size <= URLS_MAX && bytes <= BYTES_MAX) return;
      if (item.useCount > 0) continue;
      this.#items.delete(id);
      bytes -= item.bytes;
      item.url.then(URL.revokeObjectURL, () => {});
    }
  }
}

function buildKey({ file, isThumb }: Pick<MediaKey, "file" | "isThumb">): string {
  return `${file}${isThumb ? "#thumb" : ""}`;
}
