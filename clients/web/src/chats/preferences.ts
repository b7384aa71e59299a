// The user's preferences of chats, on all of their devices: pinned, archived, muted, unread.
//
// They are loaded after each connect, changed by signals, and kept for offline starts.

import { useSyncExternalStore } from "react";
import type { ChatClient, ChatEvent } from "tierchat";
import { useClient } from "tierchat/react";

/** Preferences of a chat. */
export interface ChatPreferences {
  readonly chat: string;
  /** Rises with each change. */
  readonly rev: number;
  readonly archived: boolean;
  /** Seconds since 1970; 0: without an end, null: not muted. */
  readonly muted_until: number | null;
  readonly marked_unread: boolean;
  /** No message up to this seq is shown. */
  readonly cleared_upto: number;
}

/** The preferences of all chats. */
export interface PreferencesView {
  readonly chats: ReadonlyMap<string, ChatPreferences>;
  /** Pinned chats, in order. */
  readonly pinned: readonly string[];
}

type Changes = Partial<Omit<ChatPreferences, "chat" | "rev">>;

interface Pinned {
  chats: string[];
  rev: number;
}

const PAGE = 200;
const PAGES_MAX = 20;

/** Return the preferences of a chat where nothing was chosen. */
function defaults(chat: string): ChatPreferences {
  const none = { rev: 0, archived: false, muted_until: null, marked_unread: false };
  return { chat, ...none, cleared_upto: 0 };
}

/** Return whether a chat is muted now. */
export function isMutedChat(preferences: ChatPreferences | undefined): boolean {
  const until = preferences?.muted_until ?? null;
  return until !== null && (until === 0 || until * 1000 > Date.now());
}

/** Keeps the preferences of a user. */
export class PreferencesStore {
  readonly #client: ChatClient;
  readonly #listeners = new Set<() => void>();
  #view: PreferencesView = { chats: new Map(), pinned: [] };
  #pinnedRev = 0;

  constructor(client: ChatClient) {
    this.#client = client;
    this.#restore();
    client.on((event) => this.#apply(event));
    if (client.isOnline) void this.#load();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly getView = (): PreferencesView => this.#view;

  /** Change preferences of a chat: here at once, and on the server. */
  async change(chat: string, changes: Changes): Promise<void> {
    const before = this.#view.chats.get(chat) ?? defaults(chat);
    this.#put({ ...before, ...changes });
    try {
      const path = `/v1/chats/${encodeURIComponent(chat)}/preferences`;
      this.#put((await this.#client.http.request("PATCH", path, changes)) as ChatPreferences);
    } catch (error) {
      this.#put(before);
      throw error;
    }
  }

  /** Pin a chat to the top of the list, or unpin it. */
  async pin(chat: string, isPinned: boolean): Promise<void> {
    const before = { chats: [...this.#view.pinned], rev: this.#pinnedRev };
    const others = before.chats.filter((each) => each !== chat);
    const chats = isPinned ? [chat, ...others] : others;
    this.#putPinned({ chats, rev: before.rev });
    try {
      const body = { chats, rev: before.rev };
      const path = "/v1/me/pinned-chats";
      this.#putPinned((await this.#client.http.request("PUT", path, body)) as Pinned);
    } catch (error) {
      this.#putPinned(before);
      void this.#load();
      throw error;
    }
  }

  #apply(event: ChatEvent): void {
    if (event.type === "connected") void this.#load();
    if (event.type !== "signalReceived") return;
    const { kind, fields } = event;
    if (kind === "chat_preferences") this.#putNewer(fields["preferences"] as ChatPreferences);
    if (kind === "pinned_chats") {
      const pinned = fields["pinned"] as Pinned;
      if (pinned.rev > this.#pinnedRev) this.#putPinned(pinned);
    }
  }

  async #load(): Promise<void> {
    try {
      this.#putPinned((await this.#client.http.request("GET", "/v1/me/pinned-chats")) as Pinned);
      let cursor = "";
      for (let count = 0; count < PAGES_MAX; count += 1) {
        const path = `/v1/me/chat-preferences?limit=${PAGE}${cursor}`;
        const page = (await this.#client.http.request("GET", path)) as {
          items: ChatPreferences[];
          next: string | null;
        };
        for (const item of page.items) this.#putNewer(item);
        if (page.next == null) break;
        cursor = `&cursor=${encodeURIComponent(page.next)}`;
      }
    } catch {
      // Offline: the stored preferences apply; the next connection loads them.
    }
  }

  #putNewer(preferences: ChatPreferences): void {
    if (preferences.rev >= (this.#view.chats.get(preferences.chat)?.rev ?? 0)) {
      this.#put(preferences);
    }
  }

  #put(preferences: ChatPreferences): void {
    const chats = new Map(this.#view.chats).set(preferences.chat, preferences);
    this.#set({ ...this.#view, chats });
  }

  #putPinned({ chats, rev }: Pinned): void {
    this.#pinnedRev = rev;
    this.#set({ ...this.#view, pinned: chats });
  }

  #set(view: PreferencesView): void {
    this.#view = view;
    for (const listener of this.#listeners) listener();
    try {
      const stored = { chats: [...view.chats.values()], pinned: view.pinned, rev: this.#pinnedRev };
      localStorage.setItem(keyOf(this.#client.user), JSON.stringify(stored));
    } catch {
      // Without storage, they are loaded at each start.
    }
  }

  #restore(): void {
    try {
      const text = localStorage.getItem(keyOf(this.#client.user)) ?? "";
      const { chats, pinned, rev } = JSON.parse(text) as {
        chats: ChatPreferences[];
        pinned: string[];
        rev: number;
      };
      this.#pinnedRev = rev;
      this.#view = { chats: new Map(chats.map((each) => [each.chat, each])), pinned };
    } catch {
      // Nothing is stored.
    }
  }
}

const keyOf = (user: string): string => `tierchat.preferences.${user}`;

const stores = new WeakMap<ChatClient, PreferencesStore>();

/** Return the preferences, for changes. */
export function usePreferencesStore(): PreferencesStore {
  const client = useClient();
  let store = stores.get(client);
  if (store === undefined) stores.set(client, (store = new PreferencesStore(client)));
  return store;
}

/** Return the preferences of all chats. */
export function usePreferences(): PreferencesView {
  const store = usePreferencesStore();
  return useSyncExternalStore(store.subscribe, store.getView);
}

/** Return the preferences of a chat. */
export function useChatPreferences(chat: string): ChatPreferences & { isPinned: boolean } {
  const { chats, pinned } = usePreferences();
  return { ...(chats.get(chat) ?? defaults(chat)), isPinned: pinned.includes(chat) };
}
