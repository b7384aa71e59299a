// Synchronization of drafts between the user's devices, with chat preferences.
//
// A draft that was changed on this device and is not on the server yet is never overwritten. If two
// devices change a draft at the same time, the last sent draft remains.

import { ChatError } from "../state/errors.js";
import type { Preferences } from "./chat_preferences.js";

const SEND_DELAY_MS = 1_000; // after the last change
const RETRY_MS = 10_000;
const DRAFT_CHARS_MAX = 4_000;

/** Sends the drafts of this device and applies those of other devices. */
export class DraftSync {
  readonly #preferences: Preferences;
  readonly #read: (chat: string) => string | null;
  readonly #write: (chat: string, text: string) => void;
  readonly #synced = new Map<string, string>(); // chat → text that is also on the server
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  readonly #sending = new Set<string>();

  /** `read` returns null until the drafts of this device are loaded. */
  constructor(
    preferences: Preferences,
    read: (chat: string) => string | null,
    write: (chat: string, text: string) => void,
  ) {
    this.#preferences = preferences;
    this.#read = read;
    this.#write = write;
    preferences.onChange((chats) => {
      for (const chat of chats) this.#apply(chat);
    });
  }

  /** Schedule a send of a changed draft. An empty draft is sent at once. */
  onChanged(chat: string): void {
    this.#preferences.setUnsent(chat, true);
    this.#schedule(chat, this.#read(chat) === "" ? 0 : SEND_DELAY_MS);
  }

  #schedule(chat: string, waitMs: number): void {
    clearTimeout(this.#timers.get(chat));
    this.#timers.set(
      chat,
      setTimeout(() => void this.#send(chat), waitMs),
    );
  }

  /** Send the unsent drafts, after the preferences were loaded. */
  onConnected(chats: readonly string[]): void {
    for (const chat of chats) {
      if (this.#preferences.isUnsent(chat)) this.#schedule(chat, SEND_DELAY_MS);
      else this.#apply(chat);
    }
  }

  /** Send the pending drafts now. */
  flush(): void {
    for (const chat of [...this.#timers.keys()]) void this.#send(chat);
  }

  async #send(chat: string): Promise<void> {
    clearTimeout(this.#timers.get(chat));
    this.#timers.delete(chat);
    if (this.#sending.has(chat)) return; // `#send` compares the text again when the call returns
    const text = this.#read(chat) ?? "";
    if (text.length > DRAFT_CHARS_MAX) return;
    const serverDraft = this.#preferences.get(chat).draft;
    if (text !== (serverDraft?.text ?? "")) {
      const version = Math.max(Date.now(), (serverDraft?.version ?? 0) + 1);
      this.#sending.add(chat);
      try {
        await this.#preferences.change(chat, { draft: { text, version } });
      } catch (error) {
        // After another error, the draft is sent with the next change or connection.
        if (error instanceof ChatError && error.isTemporary) this.#schedule(chat, RETRY_MS);
        return;
      } finally {
        this.#sending.delete(chat);
      }
    }
    this.#synced.set(chat, text);
    if (this.#read(chat) === text) {
      this.#preferences.setUnsent(chat, false);
      this.#apply(chat);
    } else if (!this.#timers.has(chat)) {
      this.onChanged(chat);
    }
  }

  #apply(chat: string): void {
    const localText = this.#read(chat);
    if (localText === null || this.#sending.has(chat)) return;
    const text = this.#preferences.get(chat).draft?.text ?? "";
    if (localText !== text && this.#isChangedLocally(chat, localText)) return;
    this.#synced.set(chat, text);
    if (localText !== text) this.#write(chat, text);
  }

  #isChangedLocally(chat: string, localText: string): boolean {
    if (this.#preferences.isUnsent(chat)) return true;
    const synced = this.#synced.get(chat);
    if (synced !== undefined) return localText !== synced; // another tab changed it
    // The text is from an earlier run: only saved preferences show whether the server has it.
    return localText !== "" && !this.#preferences.isRestored;
  }
}
