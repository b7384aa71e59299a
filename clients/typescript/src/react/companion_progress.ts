// AI responses in progress, which are never stored.

import type { ChatEvent } from "../state/events.js";

const RESPONSES_MAX = 100;

/** A response that an AI companion is writing. */
export interface ResponseProgress {
  /** Seq of the message that it responds to. */
  readonly seq: number;
  /** The text so far. */
  readonly text: string;
  /** False after the end of the response; its message follows. */
  readonly isRunning: boolean;
  /** The tool in use, or "". */
  readonly tool: string;
}

/** AI responses in progress, until their messages arrive. */
export class CompanionProgress {
  readonly #onChange: (chat: string) => void;
  readonly #responses = new Map<string, ResponseProgress>();
  readonly #respondedUpto = new Map<string, number>(); // chat → last seq with a response

  constructor(onChange: (chat: string) => void) {
    this.#onChange = onChange;
  }

  /** Return the response in a chat, or null. */
  get(chat: string): ResponseProgress | null {
    return this.#responses.get(chat) ?? null;
  }

  /** Apply an event. */
  apply(event: ChatEvent): void {
    if (event.type === "messageAdded" && event.message.ai != null) {
      this.#finish(event.chat, event.message.reply_to ?? 0);
    }
    if (event.type !== "responseUpdated") return;
    const { chat, seq, text, tool, end } = event;
    if (seq <= (this.#respondedUpto.get(chat) ?? 0)) return;
    putBounded(this.#responses, chat, { seq, text, tool, isRunning: end === "" });
    this.#onChange(chat);
  }

  /** Remove all entries. */
  clear(): void {
    this.#responses.clear();
    this.#respondedUpto.clear();
  }

  #finish(chat: string, seq: number): void {
    if (seq > (this.#respondedUpto.get(chat) ?? 0)) putBounded(this.#respondedUpto, chat, seq);
    const response = this.#responses.get(chat);
    if (response === undefined || response.seq > seq) return;
    this.#responses.delete(chat);
    this.#onChange(chat);
  }
}

function putBounded<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  const [oldest] = map.keys();
  if (oldest !== undefined && map.size >= RESPONSES_MAX) map.delete(oldest);
  map.set(key, value);
}
