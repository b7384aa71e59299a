// Keeps the unsent text of a chat: not at each keystroke, but soon, and when the page goes away.

import type { Chat } from "tierchat";

const DELAY_MS = 400;

/** The draft of one chat. */
export class DraftKeeper {
  readonly #chat: Chat;
  #text: string;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(chat: Chat) {
    this.#chat = chat;
    this.#text = chat.draft;
  }

  get text(): string {
    return this.#text;
  }

  /** Keep a text, after a short delay. */
  set(text: string): void {
    if (this.#timer === undefined) {
      this.#timer = setTimeout(this.flush, DELAY_MS);
      addEventListener("pagehide", this.flush);
    }
    this.#text = text;
  }

  /** Forget the text, after it was sent. */
  clear(): void {
    this.#text = "";
    this.flush();
  }

  /** Keep the last text now. */
  readonly flush = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    removeEventListener("pagehide", this.flush);
    if (this.#chat.draft !== this.#text) this.#chat.draft = this.#text;
  };
}
