// Saves the unsent text of a chat: after a short delay, and when the page is closed.
//
// A write to IndexedDB may not finish when the page is closed. Therefore, the text is also written
// to the sessionStorage of this tab, until the next draft is saved.

import type { Chat, ChatClient } from "tierchat";
import { tabStorage } from "../../data/browser_storage";

const DELAY_MS = 400;
const TAB_DRAFT = "tierchat.draft";

/** The draft of one chat. */
export class DraftSaver {
  readonly #chat: Chat;
  #text: string;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(chat: Chat) {
    this.#chat = chat;
    const tabDraft = readTabDraft(chat.id);
    this.#text = tabDraft ?? chat.draft;
    if (tabDraft !== null) this.set(tabDraft);
  }

  get text(): string {
    return this.#text;
  }

  /**
   * Call `listener` with texts that another tab or device has changed.
   *
   * A text that is being changed on this page is not replaced. Return a function that removes the
   * listener.
   */
  subscribe(client: ChatClient, listener: (text: string) => void): () => void {
    const apply = (): void => {
      const { draft } = this.#chat;
      if (this.#timer !== undefined || draft === this.#text) return;
      this.#text = draft;
      listener(draft);
    };
    apply();
    return client.onChange((chats) => {
      if (chats.has(this.#chat.id)) apply();
    });
  }

  /** Save a text after a short delay. */
  set(text: string): void {
    if (this.#timer === undefined) {
      this.#timer = setTimeout(this.flush, DELAY_MS);
      // In the capture phase: before the SDK saves its state.
      addEventListener("pagehide", this.#onPageHide, true);
    }
    this.#text = text;
  }

  /** Delete the text, after it was sent. */
  clear(): void {
    this.#text = "";
    this.flush();
  }

  /** Save the last text now. */
  readonly flush = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    removeEventListener("pagehide", this.#onPageHide, true);
    tabStorage.remove(TAB_DRAFT);
    if (this.#chat.draft !== this.#text) this.#chat.draft = this.#text;
  };

  readonly #onPageHide = (): void => {
    this.flush();
    tabStorage.setJson(TAB_DRAFT, [this.#chat.id, this.#text]);
  };
}

function readTabDraft(chat: string): string | null {
  const [id, text] = tabStorage.getJson<string[]>(TAB_DRAFT) ?? [];
  return id === chat && text !== undefined ? text : null;
}
