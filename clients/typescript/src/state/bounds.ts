// Size limits of a client.

/** Size limits of a client, and its behavior at each limit. */
export interface Bounds {
  /** Entries kept per chat; the oldest are evicted, and `history` loads them again. */
  entriesMax: number;
  /** Missed entries per chat that are loaded after a disconnect; older ones are `skipped`. */
  fillMax: number;
  /** Chats; beyond that, the least recently active one is evicted. */
  chatsMax: number;
  /** Operations that are not stored yet; one more raises `overloaded`. */
  outboxMax: number;
  /** Unanswered requests; one more raises `overloaded`. */
  requestsMax: number;
  /** Members per chat whose markers are kept. */
  marksMax: number;
  /** Presence subscriptions; one more raises `overloaded`. */
  watchedMax: number;
  /** Events that the application has not consumed; beyond that, they stay on the server. */
  eventsMax: number;
}

/** The default limits. */
export const DEFAULT_BOUNDS: Readonly<Bounds> = {
  entriesMax: 1_000,
  fillMax: 1_000,
  chatsMax: 2_000,
  outboxMax: 5_000,
  requestsMax: 256,
  marksMax: 300,
  watchedMax: 500,
  eventsMax: 2_000,
};
