// State that is never stored: typing indicators, presence, and AI responses in progress.

import type { Chat } from "../client/chat.js";
import type { ChatClient } from "../client/client.js";
import type { ChatEvent } from "../state/events.js";
import { DEFAULT_BOUNDS } from "../state/model.js";

const TYPING_MS = 6_000; // longer than the interval at which members repeat the signal
const TYPING_REPEAT_MS = 3_000;
const TYPING_PAUSE_MS = 4_500;
const TYPING_MAX = 20; // members of a chat
const BATCH_MS = 100; // between changes of presence subscriptions
const WATCHED_MAX = DEFAULT_BOUNDS.watchedMax;
const RESPONSES_MAX = 100;
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
