// Message lists for user interfaces: lists and messages are the same objects until they change.

import type { Entry } from "../state/model.js";

const LISTS_MAX = 100; // the most recently read chats

interface List {
  messages: readonly Entry[];
  isOutdated: boolean;
  expiresAtS: number; // when the text of a message expires
}

/** The message lists of the most recently read chats. */
export class MessageLists {
  readonly #lists = new Map<string, List>();

  /** Rebuild these lists at their next use. */
  invalidate(chats: Iterable<string>): void {
    for (const chat of chats) {
      const list = this.#lists.get(chat);
      if (list !== undefined) list.isOutdated = true;
    }
  }

  /** Return the messages of a chat; `load` reads them if they have changed. */
  get(chat: string, nowS: number, load: () => readonly Entry[]): readonly Entry[] {
    const cached = this.#lists.get(chat);
    const isCurrent = cached !== undefined && !cached.isOutdated && nowS < cached.expiresAtS;
    if (isCurrent) return cached.messages;
    const messages = reuseObjects(load(), cached?.messages ?? []);
    this.#lists.delete(chat);
    const [oldest] = this.#lists.keys();
    if (oldest !== undefined && this.#lists.size >= LISTS_MAX) this.#lists.delete(oldest);
    this.#lists.set(chat, { messages, isOutdated: false, expiresAtS: getExpiryS(messages) });
    return messages;
  }
}

/** Return the version of a message. Copies with the same version have the same content. */
export function getVersion(message: Entry): string {
  return `${message.mid}:${message.ts}:${message.rev ?? 0}:${message.deleted ?? false}`;
}

/** Return the earliest expiry of these messages, in Unix seconds, or `Infinity`. */
export function getExpiryS(messages: readonly Entry[]): number {
  let firstS = Infinity;
  for (const { expires_at: expiresAtS, deleted } of messages) {
    if (expiresAtS == null || deleted === true) continue;
    firstS = Math.min(firstS, expiresAtS);
  }
  return firstS;
}

/** Return `messages`, with the objects of `previous` where the version is the same. */
export function reuseObjects(
  messages: readonly Entry[],
  previous: readonly Entry[],
): readonly Entry[] {
  const bySeq = new Map(previous.map((message) => [message.seq, message]));
  const reused = messages.map((message) => {
    const old = bySeq.get(message.seq);
    return old !== undefined && getVersion(old) === getVersion(message) ? old : message;
  });
  const isSame =
    reused.length === previous.length && reused.every((item, index) => item === previous[index]);
  return isSame ? previous : reused;
}
