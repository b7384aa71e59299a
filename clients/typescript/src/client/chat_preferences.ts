// The user's chat preferences and pinned chats, which are the same on all devices.
//
// This is a copy of the server's state. Changes on other devices arrive as signals. Signals may be
// lost; therefore, everything is loaded again after each reconnect. A lower `rev` never replaces a
// higher one.

import type { ChatPreferences as Fields, PinnedChats } from "../generated/frames.js";
import type { PreferenceChanges as Changes } from "../generated/http.js";
import type { HttpClient } from "../http/http_client.js";
import { ChatError } from "../state/errors.js";
import type { ChatEvent } from "../state/events.js";

const PAGE = 100;
const CHATS_MAX = 2_000;
const ATTEMPTS_MAX = 3;

/** The user's preferences of a chat. */
export interface ChatPreferences {
  readonly isArchived: boolean;
  /** End of the mute of push notifications, in Unix seconds; 0: never; null: not muted. */
  readonly mutedUntilS: number | null;
  /** Show the chat as unread, even without unread messages. */
  readonly isMarkedUnread: boolean;
  /** The user has cleared the chat up to this seq. */
  readonly clearedUpto: number;
  /** The draft of the device that changed it last; `version` is a time in milliseconds. */
  readonly draft: { readonly text: string; readonly version: number } | null;
  /** Rises with each change. */
  readonly rev: number;
}

/** Preferences to change. Absent fields stay unchanged. */
export type PreferenceChanges = Partial<Omit<ChatPreferences, "draft" | "rev">> & {
  /** Replaces a draft with a lower version; an empty text deletes it. */
  draft?: { text: string; version: number };
};

const DEFAULTS: ChatPreferences = {
  isArchived: false,
  mutedUntilS: null,
  isMarkedUnread: false,
  clearedUpto: 0,
  draft: null,
  rev: 0,
};
const NONE: PinnedChats = { chats: [], rev: 0 };

/** Preferences that an application saves for offline starts. */
export interface SavedPreferences {
  readonly chats: readonly (readonly [chat: string, preferences: ChatPreferences])[];
  readonly pinned: PinnedChats;
  /** The chats whose draft was changed on this device and is not on the server yet. */
  readonly unsent: readonly string[];
}

/** The preferences of all chats. Call `load` once. */
export class Preferences {
  readonly #http: () => HttpClient;
  readonly #listeners = new Set<(chats: ReadonlySet<string>) => void>();
  #chats: ReadonlyMap<string, ChatPreferences> = new Map();
  #pinned: PinnedChats = NONE;
  readonly #unsent = new Set<string>();
  /** True if `restore` was called. @internal */
  isRestored = false;
  #loading: Promise<void> | null = null;
  #isLoadRequested = false;

  /** @internal */
  constructor(http: () => HttpClient) {
    this.#http = http;
  }

  /** Return the preferences of a chat: the same object until they change. */
  get(chat: string): ChatPreferences {
    return this.#chats.get(chat) ?? DEFAULTS;
  }

  /** The chats with preferences: the same map until one changes. */
  get chats(): ReadonlyMap<string, ChatPreferences> {
    return this.#chats;
  }

  /** The pinned chats, in order: the same list until it changes. */
  get pinned(): readonly string[] {
    return this.#pinned.chats;
  }

  /**
   * Call `listener` with the chats that changed; return a function that removes it.
   *
   * The set is empty if only `pinned` or `saved` changed.
   */
  onChange(listener: (chats: ReadonlySet<string>) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The current preferences, for `restore`. */
  get saved(): SavedPreferences {
    return { chats: [...this.#chats], pinned: this.#pinned, unsent: [...this.#unsent] };
  }

  /** Use saved preferences until the server's are loaded. Call it before `load`. */
  restore({ chats, pinned, unsent }: SavedPreferences): void {
    this.#pinned = pinned;
    for (const chat of unsent) this.#unsent.add(chat);
    this.isRestored = true;
    this.#set(chats.slice(0, CHATS_MAX));
  }

  /** Return whether a draft was changed on this device and is not on the server yet. @internal */
  isUnsent(chat: string): boolean {
    return this.#unsent.has(chat);
  }

  /** Record whether a draft is not on the server yet. @internal */
  setUnsent(chat: string, isUnsent: boolean): void {
    if (this.#unsent.has(chat) === isUnsent) return;
    if (isUnsent) this.#unsent.add(chat);
    else this.#unsent.delete(chat);
    this.#notify(new Set()); // `saved` changed
  }

  /** Load all preferences, now and after each reconnect. */
  async load(): Promise<void> {
    this.#isLoadRequested = true;
    this.#loading ??= this.#loadNow().finally(() => {
      this.#loading = null;
    });
    await this.#loading;
  }

  async #loadNow(): Promise<void> {
    this.#applyPinned(await this.#http().call("get_pinned_chats", {}));
    const before = this.#chats;
    const loaded = new Set<string>();
    let cursor: string | null = null;
    do {
      const position: { cursor?: string } = cursor === null ? {} : { cursor };
      const page = await this.#http().call("list_chat_preferences", { limit: PAGE, ...position });
      this.#applyItems(page.items);
      for (const { chat } of page.items) loaded.add(chat);
      cursor = page.next ?? null;
    } while (cursor !== null && loaded.size < CHATS_MAX);
    if (cursor !== null) return;
    // The server does not list chats with default preferences.
    const removed = [...before].filter(([chat, preferences]) => {
      return !loaded.has(chat) && this.#chats.get(chat) === preferences;
    });
    this.#set(removed.map(([chat, { rev }]) => [chat, { ...DEFAULTS, rev }]));
  }

  /** Change some preferences of a chat: at once on this device, then on the server. */
  async change(chat: string, changes: PreferenceChanges): Promise<ChatPreferences> {
    const { isArchived, mutedUntilS, isMarkedUnread, clearedUpto, draft } = changes;
    const body: Changes = {};
    if (isArchived !== undefined) body.archived = isArchived;
    if (mutedUntilS !== undefined) body.muted_until = mutedUntilS;
    if (isMarkedUnread !== undefined) body.marked_unread = isMarkedUnread;
    if (clearedUpto !== undefined) body.cleared_upto = clearedUpto;
    if (draft !== undefined) body.draft = draft;
    const before = this.#chats.get(chat);
    const optimistic = { ...this.get(chat), ...changes };
    this.#set([[chat, optimistic]]);
    try {
      this.#applyItems([await this.#http().call("change_chat_preferences", { chat, body })]);
    } catch (error) {
      if (this.get(chat) === optimistic) this.#set([[chat, before ?? DEFAULTS]]);
      throw error;
    }
    return this.get(chat);
  }

  /** Pin a chat above the other pinned chats. */
  pin(chat: string): Promise<void> {
    return this.#changePinned((chats) => [chat, ...chats.filter((id) => id !== chat)]);
  }

  /** Unpin a chat. */
  unpin(chat: string): Promise<void> {
    return this.#changePinned((chats) => chats.filter((id) => id !== chat));
  }

  /** Replace the pinned chats. */
  setPinned(chats: readonly string[]): Promise<void> {
    return this.#changePinned(() => [...chats]);
  }

  /** Change the pinned chats; after a conflict with another device, apply the change again. */
  async #changePinned(change: (chats: readonly string[]) => string[]): Promise<void> {
    const before = this.#pinned;
    const optimistic = { ...before, chats: change(before.chats) };
    this.#setPinned(optimistic);
    try {
      this.#applyPinned(await this.#replacePinned(change));
    } catch (error) {
      if (this.#pinned === optimistic) this.#setPinned(before);
      throw error;
    }
  }

  async #replacePinned(change: (chats: readonly string[]) => string[]): Promise<PinnedChats> {
    for (let attempt = 1; ; attempt += 1) {
      const current = await this.#http().call("get_pinned_chats", {});
      const body = { chats: change(current.chats), if_rev: current.rev ?? 0 };
      try {
        return await this.#http().call("set_pinned_chats", { body });
      } catch (error) {
        const isConflict = error instanceof ChatError && error.code === "conflict";
        if (!isConflict || attempt >= ATTEMPTS_MAX) throw error;
      }
    }
  }

  /** Apply an event of the client. @internal */
  apply(event: ChatEvent): void {
    if (event.type !== "signalReceived") return;
    const { kind, fields } = event;
    if (kind === "chat_preferences") this.#applyItems([fields["preferences"] as Fields]);
    if (kind === "pinned_chats") this.#applyPinned(fields["pinned"] as PinnedChats);
  }

  /** Reload the preferences if they are in use. @internal */
  async onConnected(): Promise<void> {
    if (this.#isLoadRequested) await this.load();
  }

  #applyItems(items: readonly Fields[]): void {
    const isNewer = ({ chat, rev = 0 }: Fields): boolean => {
      const current = this.#chats.get(chat);
      return current === undefined ? this.#chats.size < CHATS_MAX : rev > current.rev;
    };
    this.#set(items.filter(isNewer).map((item) => [item.chat, parsePreferences(item)]));
  }

  #set(changed: readonly (readonly [string, ChatPreferences])[]): void {
    if (changed.length === 0) return;
    this.#chats = new Map([...this.#chats, ...changed]);
    this.#notify(new Set(changed.map(([chat]) => chat)));
  }

  #applyPinned(pinned: PinnedChats): void {
    const isOlder = (pinned.rev ?? 0) <= (this.#pinned.rev ?? 0);
    if (!isOlder || this.#pinned === NONE) this.#setPinned(pinned);
  }

  #setPinned(pinned: PinnedChats): void {
    this.#pinned = pinned;
    this.#notify(new Set());
  }

  #notify(chats: ReadonlySet<string>): void {
    for (const listener of [...this.#listeners]) listener(chats);
  }
}

function parsePreferences(fields: Fields): ChatPreferences {
  const { rev = 0, archived, muted_until, marked_unread, draft, cleared_upto } = fields;
  return {
    isArchived: archived ?? false,
    mutedUntilS: muted_until ?? null,
    isMarkedUnread: marked_unread ?? false,
    clearedUpto: cleared_upto ?? 0,
    draft: draft ?? null,
    rev,
  };
}
