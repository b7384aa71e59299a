// The user's chat preferences and pinned chats, which are the same on all devices.
//
// This is a copy of the server's state. Changes on other devices arrive as signals, which may be
// lost; therefore, everything is loaded again after each connection. A lower `rev` never replaces a
// higher one.

import type { ChatPreferences as Fields, PinnedChats } from "../generated/frames.js";
import type { PreferenceChanges as Changes } from "../generated/http.js";
import type { HttpClient } from "../http/http_client.js";
import { ChatError } from "../state/errors.js";
import type { ChatEvent } from "../state/events.js";

const PAGE = 100;
const CHATS_MAX = 2_000;
const TRIES = 3;

/** The user's preferences of a chat. */
export interface ChatPreferences {
  readonly isArchived: boolean;
  /** End of the mute of push notifications, in Unix seconds; 0: never; null: not muted. */
  readonly mutedUntilS: number | null;
  /** Show the chat as unread, whatever its unread count. */
  readonly isMarkedUnread: boolean;
  /** Show no message up to this seq. */
  readonly clearedUpto: number;
  /** The unsent text of the device that changed it last; `version` is a time in milliseconds. */
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
  /** The chats whose draft was changed here and is not on the server yet. */
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
  #isUsed = false;

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

  /** The chats at the top of the list, in order: the same list until it changes. */
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

  /** Return whether a draft was changed here and is not on the server yet. @internal */
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

  /** Load all preferences, now and after each connection. */
  async load(): Promise<void> {
    this.#isUsed = true;
    this.#loading ??= this.#loadNow().finally(() => {
      this.#loading = null;
    });
    await this.#loading;
  }

  async #loadNow(): Promise<void> {
    this.#applyPinned(await this.#http().call("get_pinned_chats", {}));
    const before = this.#chats;
    const found = new Set<string>();
    let cursor: string | null = null;
    do {
      const place: { cursor?: string } = cursor === null ? {} : { cursor };
      const page = await this.#http().call("list_chat_preferences", { limit: PAGE, ...place });
      this.#applyItems(page.items);
      for (const { chat } of page.items) found.add(chat);
      cursor = page.next ?? null;
    } while (cursor !== null && found.size < CHATS_MAX);
    if (cursor !== null) return;
    // The server does not list chats with default preferences.
    const gone = [...before].filter(([chat, known]) => {
      return !found.has(chat) && this.#chats.get(chat) === known;
    });
    this.#set(gone.map(([chat, { rev }]) => [chat, { ...DEFAULTS, rev }]));
  }

  /** Change some preferences of a chat, here at once and on all devices of the user. */
  async change(chat: string, changes: PreferenceChanges): Promise<ChatPreferences> {
    const { isArchived, mutedUntilS, isMarkedUnread, clearedUpto, draft } = changes;
    const body: Changes = {};
    if (isArchived !== undefined) body.archived = isArchived;
    if (mutedUntilS !== undefined) body.muted_until = mutedUntilS;
    if (isMarkedUnread !== undefined) body.marked_unread = isMarkedUnread;
    if (clearedUpto !== undefined) body.cleared_upto = clearedUpto;
    if (draft !== undefined) body.draft = draft;
    const before = this.#chats.get(chat);
    const expected = { ...this.get(chat), ...changes };
    this.#set([[chat, expected]]);
    try {
      this.#applyItems([await this.#http().call("change_chat_preferences", { chat, body })]);
    } catch (error) {
      if (this.get(chat) === expected) this.#set([[chat, before ?? DEFAULTS]]);
      throw error;
    }
    return this.get(chat);
  }

  /** Pin a chat above the other pinned chats. */
  pin(chat: string): Promise<void> {
    return this.#changePinned((chats) => [chat, ...chats.filter((each) => each !== chat)]);
  }

  /** Unpin a chat. */
  unpin(chat: string): Promise<void> {
    return this.#changePinned((chats) => chats.filter((each) => each !== chat));
  }

  /** Replace the pinned chats. */
  setPinned(chats: readonly string[]): Promise<void> {
    return this.#changePinned(() => [...chats]);
  }

  /** Change the pinned chats; if another device changed them meanwhile, apply the change again. */
  async #changePinned(changed: (chats: readonly string[]) => string[]): Promise<void> {
    const before = this.#pinned;
    const expected = { ...before, chats: changed(before.chats) };
    this.#setPinned(expected);
    try {
      this.#applyPinned(await this.#replacePinned(changed));
    } catch (error) {
      if (this.#pinned === expected) this.#setPinned(before);
      throw error;
    }
  }

  async #replacePinned(changed: (chats: readonly string[]) => string[]): Promise<PinnedChats> {
    for (let left = TRIES; ; left -= 1) {
      const known = await this.#http().call("get_pinned_chats", {});
      const body = { chats: changed(known.chats), if_rev: known.rev ?? 0 };
      try {
        return await this.#http().call("set_pinned_chats", { body });
      } catch (error) {
        if (!(error instanceof ChatError) || error.code !== "conflict" || left <= 1) throw error;
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
    if (this.#isUsed) await this.load();
  }

  #applyItems(items: readonly Fields[]): void {
    const isNewer = ({ chat, rev = 0 }: Fields): boolean => {
      const known = this.#chats.get(chat);
      return known === undefined ? this.#chats.size < CHATS_MAX : rev > known.rev;
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
