// Bounded queue of events that the application has not consumed yet.
//
// If the queue is full, the client leaves chat events on the server (`ClientState.pause`). A full
// queue drops signals (typing, presence); it keeps only the newest connection state and the newest
// `storedUpto` of each chat.

import type { QueuedEvent } from "../state/client_state.js";
import type { ChatEvent } from "../state/events.js";

/** Events in order: at most `eventsMax`, plus events that must not be dropped. */
export class EventQueue {
  readonly #eventsMax: number;
  #queue: QueuedEvent[] = [];
  #current: QueuedEvent | null = null; // popped, but perhaps not consumed yet
  // The newest `storedUpto` by chat; "": the newest connection state.
  readonly #newest = new Map<string, QueuedEvent>();

  constructor(eventsMax: number) {
    this.#eventsMax = eventsMax;
  }

  get size(): number {
    return this.#queue.length;
  }

  /** The events that were not consumed, oldest first. */
  get unconsumed(): readonly QueuedEvent[] {
    return this.#current === null ? this.#queue : [this.#current, ...this.#queue];
  }

  /** True while the client must leave events on the server. */
  get isFull(): boolean {
    return this.#queue.length >= this.#eventsMax;
  }

  /** Append an event; if the queue is full, coalesce or drop it where possible. */
  put(queued: QueuedEvent): void {
    const { event } = queued;
    if (!this.isFull) this.#queue.push(queued);
    else if (event.type === "connected" || event.type === "disconnected") {
      this.#newest.set("", queued);
    } else if (event.type === "storedUpto") this.#newest.set(event.chat, queued);
    else if (event.type !== "signalReceived" && event.type !== "responseUpdated") {
      this.#queue.push(queued);
    }
  }

  /** Drop the oldest event if the queue is too long. For tabs, the server keeps no events. */
  dropOldest(): void {
    if (this.#queue.length > this.#eventsMax) this.#queue.shift();
  }

  /** Remove and return the oldest event, if any. The previous event counts as consumed. */
  pop(): ChatEvent | undefined {
    const popped = this.#queue.shift();
    this.#current = popped ?? null;
    if (this.#queue.length === 0) {
      this.#queue.push(...this.#newest.values());
      this.#newest.clear();
    }
    return popped?.event;
  }
}
