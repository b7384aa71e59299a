// Message lists for user interfaces: lists and messages keep their identity until they change.

import type { Entry } from "../state/model.js";

const LISTS_MAX = 100; // the most recently read chats

interface List {
  messages: readonly Entry[];
  isOutdated: boolean;
  expiresAtS: number; // then the text of a message expires
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
    const known = this.#lists.get(chat);
    if (known !== undefined && !known.isOutdated && nowS < known.expiresAtS) return known.messages;
    const messages = reuseObjects(load(), known?.messages ?? []);
    this.#lists.delete(chat);
    const [oldest] = this.#lists.keys();
    if (oldest !== undefined && this.#lists.size >= LISTS_MAX) this.#lists.delete(oldest);
    this.#lists.set(chat, { messages, isOutdated: false, expiresAtS: getExpiryS(messages) });
    return messages;
  }
}

/** Return a version of a message. Copies with the same version have the same content. */
export function getVersion(message: Entry): string {
  return `${message.mid}:${message.ts}:${message.rev ?? 0}:${message.deleted ?? false}`;
}

/** Return when the first of these messages expires, in Unix seconds, or `Infinity`. */
export function getExpiryS(messages: readonly Entry[]): number {
  let first = Infinity;
  for (const { expires_at: at, deleted } of messages) {
    if (at != null && deleted !== true && at < first) first = at;
  }
  return first;
}

/** Return `messages`, but reuse the objects of `known` that have the same version. */
export function reuseObjects(
  messages: readonly Entry[],
  known: readonly Entry[],
): readonly Entry[] {
  const before = new Map(known.map((message) => [message.seq, message]));
  const same = messages.map((message) => {
    const old = before.get(message.seq);
    return old !== undefined && getVersion(old) === getVersion(message) ? old : message;
  });
  const isSame = same.length === known.length && same.every((each, index) => each === known[index]);
  return isSame ? known : same;
}
