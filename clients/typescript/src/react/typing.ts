// Typing indicators, which are never stored.

import type { Chat } from "../client/chat.js";
import type { ChatEvent } from "../state/events.js";

const TYPING_MS = 6_000; // longer than the interval at which members repeat the signal
const TYPING_REPEAT_MS = 3_000;
const TYPING_PAUSE_MS = 4_500;
const TYPING_MAX = 20; // members of a chat
const NOBODY: readonly string[] = [];

/** The members who are typing, by chat. */
export class TypingTable {
  readonly #onChange: (chat: string) => void;
  readonly #chats = new Map<string, readonly string[]>();
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(onChange: (chat: string) => void) {
    this.#onChange = onChange;
  }

  /** Return the members who are typing; the same list until it changes. */
  get(chat: string): readonly string[] {
    return this.#chats.get(chat) ?? NOBODY;
  }

  /** Apply an event. */
  apply(event: ChatEvent): void {
    if (event.type === "messageAdded") this.#set(event.chat, event.message.sender, false);
    if (event.type === "disconnected") this.clear();
    if (event.type !== "signalReceived" || event.kind !== "typing" || event.chat === null) return;
    this.#set(event.chat, event.sender, event.fields["on"] === true);
  }

  /** Remove all entries. */
  clear(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    const chats = [...this.#chats.keys()];
    this.#chats.clear();
    for (const chat of chats) this.#onChange(chat);
  }

  #set(chat: string, user: string, isTyping: boolean): void {
    const key = `${chat} ${user}`;
    clearTimeout(this.#timers.get(key));
    this.#timers.delete(key);
    const typing = this.get(chat);
    if (isTyping && (typing.includes(user) || typing.length < TYPING_MAX)) {
      this.#timers.set(
        key,
        setTimeout(() => this.#set(chat, user, false), TYPING_MS),
      );
    }
    if (isTyping === typing.includes(user) || (isTyping && typing.length >= TYPING_MAX)) return;
    const users = isTyping ? [...typing, user] : typing.filter((other) => other !== user);
    if (users.length === 0) this.#chats.delete(chat);
    else this.#chats.set(chat, users);
    this.#onChange(chat);
  }
}

/** Sends typing signals: at most one per `TYPING_REPEAT_MS`, and an end after a pause. */
export class TypingSender {
  readonly #chat: Chat;
  #sentAtMs = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(chat: Chat) {
    this.#chat = chat;
  }

  /** Record that the user typed, or stopped typing. */
  set(isTyping: boolean): void {
    clearTimeout(this.#timer);
    const nowMs = performance.now();
    if (isTyping) {
      this.#timer = setTimeout(() => this.set(false), TYPING_PAUSE_MS);
      if (nowMs - this.#sentAtMs < TYPING_REPEAT_MS) return;
      this.#sentAtMs = nowMs;
    } else {
      if (this.#sentAtMs === -Infinity) return;
      this.#sentAtMs = -Infinity;
    }
    try {
      this.#chat.typing(isTyping);
    } catch {
      // The client is not connected yet, or has ended.
    }
  }
}
