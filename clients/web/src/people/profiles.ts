// Names and pictures of users, for every place that shows somebody.
//
// Names are requested together, pictures one by one, a few at a time. Both are kept while the page
// is open: at most `USERS_MAX` users; a picture as long as its link is valid.

import { useSyncExternalStore } from "react";
import { ChatError, type ChatClient } from "tierchat";
import { useClient } from "tierchat/react";

const USERS_MAX = 1_000;
const BATCH_MAX = 50;
const BATCH_MS = 20;
const PICTURES_AT_ONCE = 4;
const NAME_MS = 600_000; // a name is requested again after this time
const NO_PICTURE_MS = 300_000;
const EARLY_MS = 30_000; // a link this close to its end is replaced

/** What is known about a user. The name is the username until it is loaded. */
export interface Profile {
  name: string;
  picture: string | null;
}

interface Entry {
  profile: Profile;
  nameUntil: number;
  pictureUntil: number;
}

/** Profiles of one client. */
class Profiles {
  readonly #client: ChatClient;
  readonly #entries = new Map<string, Entry>();
  readonly #listeners = new Set<() => void>();
  readonly #names = new Set<string>();
  readonly #pictures: string[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running = 0;

  constructor(client: ChatClient) {
    this.#client = client;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Return what is known about a user now; what is missing is requested. */
  get(user: string): Profile {
    const now = Date.now();
    let entry = this.#entries.get(user);
    if (entry === undefined) {
      entry = { profile: { name: user, picture: null }, nameUntil: 0, pictureUntil: 0 };
      if (this.#entries.size >= USERS_MAX) {
        this.#entries.delete(this.#entries.keys().next().value ?? "");
      }
      this.#entries.set(user, entry);
    }
    if (user === "" || user.startsWith("ai-")) return entry.profile;
    if (entry.nameUntil < now) {
      entry.nameUntil = now + NAME_MS;
      this.#names.add(user);
      this.#timer ??= setTimeout(() => void this.#loadNames(), BATCH_MS);
    }
    if (entry.pictureUntil < now) {
      entry.pictureUntil = now + NO_PICTURE_MS;
      this.#pictures.push(user);
      this.#loadPictures();
    }
    return entry.profile;
  }

  /** Apply what a page has loaded. */
  setName(user: string, name: string | null): void {
    this.get(user);
    const entry = this.#entries.get(user);
    if (entry === undefined) return;
    entry.nameUntil = Date.now() + NAME_MS;
    this.#change(entry, { name: name ?? user });
  }

  /** Request the picture of a user again, after it was changed. */
  forgetPicture(user: string): void {
    const entry = this.#entries.get(user);
    if (entry === undefined) return;
    entry.pictureUntil = 0;
    this.get(user);
  }

  #change(entry: Entry, changes: Partial<Profile>): void {
    const next = { ...entry.profile, ...changes };
    if (next.name === entry.profile.name && next.picture === entry.profile.picture) return;
    entry.profile = next;
    for (const listener of this.#listeners) listener();
  }

  async #loadNames(): Promise<void> {
    this.#timer = undefined;
    const users = [...this.#names].slice(0, BATCH_MAX);
    for (const user of users) this.#names.delete(user);
    if (this.#names.size > 0) this.#timer = setTimeout(() => void this.#loadNames(), BATCH_MS);
    try {
      const { items } = await this.#client.http.call("list_users", { user: users });
      for (const { user, name } of items) {
        const entry = this.#entries.get(user);
        if (entry !== undefined) this.#change(entry, { name: name ?? user });
      }
    } catch {
      for (const user of users) this.#retryLater(user, "nameUntil");
    }
  }

  #loadPictures(): void {
    while (this.#running < PICTURES_AT_ONCE) {
      const user = this.#pictures.shift();
      if (user === undefined) return;
      this.#running += 1;
      void this.#loadPicture(user).finally(() => {
        this.#running -= 1;
        this.#loadPictures();
      });
    }
  }

  async #loadPicture(user: string): Promise<void> {
    try {
      const link = await this.#client.http.call("get_avatar", { user, thumb: 1 });
      const entry = this.#entries.get(user);
      if (entry === undefined) return;
      entry.pictureUntil = Date.now() + Math.max(0, link.expires_s * 1000 - EARLY_MS);
      this.#change(entry, { picture: link.url });
    } catch (error) {
      const entry = this.#entries.get(user);
      if (entry === undefined) return;
      const isGone = error instanceof ChatError && !error.isTemporary;
      if (isGone) this.#change(entry, { picture: null });
      else this.#retryLater(user, "pictureUntil");
    }
  }

  #retryLater(user: string, field: "nameUntil" | "pictureUntil"): void {
    const entry = this.#entries.get(user);
    if (entry !== undefined) entry[field] = Date.now() + EARLY_MS;
  }
}

const stores = new WeakMap<ChatClient, Profiles>();

/** Return the profiles of a client. */
export function profilesOf(client: ChatClient): Profiles {
  let store = stores.get(client);
  if (store === undefined) stores.set(client, (store = new Profiles(client)));
  return store;
}

/** Return the name and picture of a user; the component is rendered again when they are loaded. */
export function useProfile(user: string): Profile {
  const store = profilesOf(useClient());
  return useSyncExternalStore(store.subscribe, () => store.get(user));
}
