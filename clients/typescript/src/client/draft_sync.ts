// Unsent texts on all devices of the user, by the preferences of chats.
//
// A text that the user has changed here and that the server does not have yet is never replaced.

import { ChatError } from "../state/errors.js";
import type { Preferences } from "./preferences.js";

const WAIT_MS = 1_000; // after the last change
const DRAFT_CHARS_MAX = 4_000;

/** Sends the texts of this device, and takes those of others. */
export class DraftSync {
  readonly #preferences: Preferences;
  readonly #read: (chat: string) => string;
  readonly #write: (chat: string, text: string) => void;
  readonly #agreed = new Map<string, string>(); // chat → text that the server has, too
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  readonly #unsent = new Set<string>(); // chats whose text could not be sent

  constructor(
    preferences: Preferences,
    read: (chat: string) => string,
    write: (chat: string, text: string) => void,
  ) {
    this.#preferences = preferences;
    this.#read = read;
    this.#write = write;
    preferences.onChange((chats) => {
      for (const chat of chats) this.#take(chat);
    });
  }

  /** The user has changed the text of a chat. */
  changed(chat: string): void {
    clearTimeout(this.#timers.get(chat));
    this.#timers.set(chat, setTimeout(() => void this.#send(chat), WAIT_MS));
  }

  /** There is a connection: send what could not be sent. */
  connected(): void {
    const chats = [...this.#unsent];
    this.#unsent.clear();
    for (const chat of chats) this.changed(chat);
  }

  /** Send at once what still waits for a pause of the user. */
  flush(): void {
    for (const chat of [...this.#timers.keys()]) void this.#send(chat);
  }

  async #send(chat: string): Promise<void> {
    clearTimeout(this.#timers.get(chat));
    this.#timers.delete(chat);
    const text = this.#read(chat);
    const known = this.#preferences.get(chat).draft;
    const isKnown = text === (this.#agreed.get(chat) ?? known?.text ?? "");
    if (isKnown || text.length > DRAFT_CHARS_MAX) return;
    const version = Math.max(Date.now(), (known?.version ?? 0) + 1);
    try {
      await this.#preferences.change(chat, { draft: { text, version } });
      this.#agreed.set(chat, text);
    } catch (error) {
      if (error instanceof ChatError && error.isTemporary) this.#unsent.add(chat);
    }
  }

  #take(chat: string): void {
    const text = this.#preferences.get(chat).draft?.text ?? "";
    const own = this.#read(chat);
    const isChangedHere = own !== (this.#agreed.get(chat) ?? "");
    if (isChangedHere && own !== text) return;
    this.#agreed.set(chat, text);
    if (own !== text) this.#write(chat, text);
  }
}
