// Typing signals: one at most every three seconds, and a stop when the user pauses.

const EVERY_MS = 3000;
const IDLE_MS = 4500;

export class TypingSignals {
  #last = null; // {chat, sentAt, timer}

  constructor(env, notify) {
    this.env = env;
    this.notify = notify;
  }

  /** The user types in `chat`. */
  send(chat) {
    const now = this.env.now();
    if (this.#last !== null && this.#last.chat !== chat) this.stop();
    const sentAt = this.#last?.sentAt ?? -Infinity;
    this.env.clearTimeout(this.#last?.timer);
    const timer = this.env.setTimeout(() => this.stop(), IDLE_MS);
    const isDue = now - sentAt >= EVERY_MS;
    this.#last = { chat, sentAt: isDue ? now : sentAt, timer };
    if (isDue) this.notify({ type: "typing", chat, on: true });
  }

  stop() {
    if (this.#last === null) return;
    const { chat } = this.#last;
    this.forget();
    this.notify({ type: "typing", chat, on: false });
  }

  /** Stop without a signal: the connection is closed. */
  forget() {
    this.env.clearTimeout(this.#last?.timer);
    this.#last = null;
  }
}
