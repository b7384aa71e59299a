// Drops events that a tab has already delivered, after another tab took over the connection.
//
// The new leader resumes from the saved position, which may be a few events behind.

import type { QueuedEvent } from "../state/client_state.js";
import type { ChatEvent } from "../state/events.js";

const REFS_MAX = 1_000;

/** Delivers each entry of a chat and each ack once. */
export class EventFilter {
  readonly #deliveredUpto = new Map<string, number>();
  readonly #refs = new Set<string>();

  /** Return the events that were not delivered before. */
  apply(events: QueuedEvent[]): QueuedEvent[] {
    return events.filter(({ event }) => this.#isNew(event));
  }

  #isNew(event: ChatEvent): boolean {
    switch (event.type) {
      case "messageAdded":
        return this.#advance(event.chat, event.message.seq);
      case "messageChanged":
      case "memberChanged":
      case "pinsChanged":
        return this.#advance(event.chat, event.change.seq);
      case "chatChanged":
        return event.change === null || this.#advance(event.chat, event.change.seq);
      case "skipped":
        this.#advance(event.chat, event.upto);
        return true;
      case "entriesWithdrawn":
        this.#deliveredUpto.set(event.chat, event.after);
        return true;
      case "acked":
      case "refused":
        return this.#addRef(event.ref);
      default:
        return true;
    }
  }

  #advance(chat: string, seq: number): boolean {
    if (seq <= (this.#deliveredUpto.get(chat) ?? 0)) return false;
    this.#deliveredUpto.set(chat, seq);
    return true;
  }

  #addRef(ref: string): boolean {
    if (this.#refs.has(ref)) return false;
    const [oldest] = this.#refs;
    if (oldest !== undefined && this.#refs.size >= REFS_MAX) this.#refs.delete(oldest);
    this.#refs.add(ref);
    return true;
  }
}
