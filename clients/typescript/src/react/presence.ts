// Presence of the users that components show; it is never stored.

import type { ChatClient } from "../client/client.js";
import { DEFAULT_BOUNDS } from "../state/bounds.js";
import type { ChatEvent } from "../state/events.js";

const BATCH_MS = 100; // between changes of presence subscriptions
const WATCHED_MAX = DEFAULT_BOUNDS.watchedMax;

/** The presence of a user. */
export interface Presence {
  readonly state: "online" | "away" | "offline";
  /** True if the state is "online". */
  readonly isOnline: boolean;
  /** Time at which an offline user was last online, in µs since 1970; null: unknown. */
  readonly lastSeenTs: number | null;
}

/** The presence of the users that components show. */
export class PresenceTable {
  readonly #client: ChatClient;
  readonly #onChange: (user: string) => void;
  readonly #presence = new Map<string, Presence>();
  readonly #counts = new Map<string, number>(); // user → number of components that show them
  readonly #watched = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: ChatClient, onChange: (user: string) => void) {
    this.#client = client;
    this.#onChange = onChange;
  }

  /** Return the presence of a user; undefined: not known. */
  get(user: string): Presence | undefined {
    return this.#presence.get(user);
  }

  /** Subscribe to the presence of users until the returned function is called. */
  watch(users: readonly string[]): () => void {
    for (const user of users) this.#counts.set(user, (this.#counts.get(user) ?? 0) + 1);
    this.#schedule();
    return () => {
      for (const user of users) {
        const remaining = (this.#counts.get(user) ?? 1) - 1;
        if (remaining > 0) this.#counts.set(user, remaining);
        else this.#counts.delete(user);
      }
      this.#schedule();
    };
  }

  /** Subscribe to all users again: another tab may have taken over the connection. */
  onConnected(): void {
    this.#watched.clear();
    this.#update();
  }

  /** Subscribe again to a user: without a common chat, the server had skipped them. */
  #resubscribe(user: string): void {
    if (!this.#counts.has(user) || this.#presence.has(user)) return;
    this.#watched.delete(user);
    this.#schedule();
  }

  /** Schedule one update for many changes: a list that scrolls adds and removes many rows. */
  #schedule(): void {
    this.#timer ??= setTimeout(() => this.#update(), BATCH_MS);
  }

  #update(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#client.isOnline) return;
    const removed = [...this.#watched].filter((user) => !this.#counts.has(user));
    for (const user of removed) {
      this.#watched.delete(user);
      this.#presence.delete(user);
    }
    const others = [...this.#counts.keys()].filter((user) => !this.#watched.has(user));
    const added = others.slice(0, WATCHED_MAX - this.#watched.size);
    for (const user of added) this.#watched.add(user);
    try {
      if (removed.length > 0) this.#client.unwatch(removed);
      if (added.length > 0) this.#client.watch(added);
    } catch {
      // The client is closed, or has too many subscriptions.
    }
  }

  /** Apply an event. */
  apply(event: ChatEvent): void {
    if (event.type === "messageAdded") this.#resubscribe(event.message.sender);
    if (event.type === "memberChanged" && event.change.user != null) {
      this.#resubscribe(event.change.user);
    }
    if (event.type !== "signalReceived" || event.kind !== "presence") return;
    const { sender, fields } = event;
    if (!this.#counts.has(sender)) return;
    const state = fields["state"] as Presence["state"];
    const lastSeen = fields["last_seen"];
    const lastSeenTs = typeof lastSeen === "number" ? lastSeen : null;
    const previous = this.#presence.get(sender);
    if (previous?.state === state && previous.lastSeenTs === lastSeenTs) return;
    this.#presence.set(sender, { state, isOnline: state === "online", lastSeenTs });
    this.#onChange(sender);
  }
}
