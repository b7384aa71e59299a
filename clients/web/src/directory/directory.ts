// Names and pictures of people, for all pages. They are loaded in batches; names are saved for
// offline starts.
//
// People are loaded when they are shown. Visible people are reloaded when the window gets the
// focus, when they send a message, and every `IDLE_REFRESH_MS` while the window is visible. A
// refresh runs at most once per `REFRESH_MS` and reloads at most `REFRESHED_MAX` people, so that a
// message to a large group does not cause too many requests.

import { useCallback, useEffect, useSyncExternalStore } from "react";
import { type ChatClient, ChatError } from "tierchat";
import { useClient } from "tierchat/react";
import { browserStorage } from "../data/browser_storage";

/** A person, as shown on pages. */
export interface Person {
  id: string;
  /** The display name; the id if the name is not loaded or there is none. */
  name: string;
  /** URL of the picture, if it has been loaded. */
  picture: string | null;
}

const BATCH_MAX = 50;
const BATCH_MS = 30;
const FRESH_MS = 10 * 60_000; // names that are older are reloaded when they are shown
const REFRESH_MS = 60_000;
const REFRESHED_MAX = 20;
// Per visible window, at most 21 small requests in this time: for 10,000 windows, 350 per second.
const IDLE_REFRESH_MS = 10 * 60_000;
const JITTER_MS_MAX = 3_000; // so that the members of a group do not all send requests at once
const NAMES_MAX = 500;
const PICTURE_LOADS_MAX = 4;
const LINK_MARGIN_MS = 30_000; // a link is replaced this long before its expiry

interface CachedPerson {
  person: Person;
  loadedAtMs: number;
  /** The picture is not requested again before this time. */
  pictureUntilMs: number;
  /** The id of the picture's file. */
  avatar: string | null;
  /** The expiry of the picture's link. */
  linkUntilMs: number;
}

/** Loads people as they are shown. */
class Directory {
  readonly #client: ChatClient;
  readonly #people = new Map<string, CachedPerson>();
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #queued = new Set<string>();
  readonly #pictures: string[] = [];
  #loadingPictures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #refreshQueue = new Set<string>();
  #refreshedAtMs = 0;
  #refreshTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: ChatClient) {
    this.#client = client;
    for (const [id, name] of readNames(client.user)) {
      this.#people.set(id, createCachedPerson(id, name));
    }
  }

  get(id: string): Person {
    let cached = this.#people.get(id);
    if (cached === undefined) {
      cached = createCachedPerson(id);
      this.#people.set(id, cached);
    }
    return cached.person;
  }

  subscribe(id: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(id) ?? new Set();
    this.#listeners.set(id, listeners.add(listener));
    const { loadedAtMs = 0 } = this.#people.get(id) ?? {};
    if (id !== "" && Date.now() - loadedAtMs > FRESH_MS) this.#queueName(id);
    this.#queuePicture(id);
    return () => listeners.delete(listener);
  }

  /** Update a person, for example after a change of the user's own profile. */
  set(id: string, changes: Partial<Person>): void {
    const before = this.get(id);
    const person = { ...before, ...changes };
    const cached = this.#people.get(id) ?? createCachedPerson(id);
    if (changes.picture !== undefined) cached.avatar = null; // another file
    this.#people.set(id, { ...cached, person, loadedAtMs: Date.now() });
    if (person.name === before.name && person.picture === before.picture) return;
    for (const listener of this.#listeners.get(id) ?? []) listener();
  }

  /** Schedule a reload of the visible people, or of the sender of a message. */
  refresh(sender?: string): void {
    const ids = sender === undefined ? [...this.#listeners.keys()] : [sender];
    for (const id of ids) if (this.#isShown(id)) this.#refreshQueue.add(id);
    if (this.#refreshQueue.size === 0 || this.#refreshTimer !== undefined) return;
    const jitterMs = sender === undefined ? 0 : Math.random() * JITTER_MS_MAX;
    const waitMs = this.#refreshedAtMs + REFRESH_MS - Date.now();
    this.#refreshTimer = setTimeout(() => this.#refreshDue(), Math.max(jitterMs, waitMs));
  }

  /** Cancel the scheduled reload, at the end of the session. */
  stopRefresh(): void {
    clearTimeout(this.#refreshTimer);
    this.#refreshTimer = undefined;
    this.#refreshQueue.clear();
  }

  #refreshDue(): void {
    this.#refreshTimer = undefined;
    if (document.visibilityState === "hidden") return; // the next focus schedules it again
    const loadedAtMs = (id: string): number => this.#people.get(id)?.loadedAtMs ?? 0;
    const refreshedBeforeMs = Date.now() - REFRESH_MS;
    const queued = [...this.#refreshQueue].filter((id) => {
      return this.#isShown(id) && loadedAtMs(id) < refreshedBeforeMs;
    });
    this.#refreshQueue.clear();
    if (queued.length > 0) this.#refreshedAtMs = Date.now();
    queued.sort((a, b) => loadedAtMs(a) - loadedAtMs(b));
    for (const id of queued.slice(0, REFRESHED_MAX)) {
      Object.assign(this.#people.get(id) ?? {}, { loadedAtMs: 0, pictureUntilMs: 0 });
      this.#queueName(id);
      this.#queuePicture(id);
    }
  }

  #isShown(id: string): boolean {
    return id !== "" && (this.#listeners.get(id)?.size ?? 0) > 0;
  }

  #queueName(id: string): void {
    this.#queued.add(id);
    this.#timer ??= setTimeout(() => void this.#loadQueued(), BATCH_MS);
  }

  async #loadQueued(): Promise<void> {
    this.#timer = undefined;
    const queued = [...this.#queued];
    this.#queued.clear();
    await this.load(queued);
  }

  /** Load the names of these people, unless they are loaded. */
  async load(ids: readonly string[]): Promise<void> {
    const loadedAfterMs = Date.now() - FRESH_MS;
    const missing = ids.filter((id) => (this.#people.get(id)?.loadedAtMs ?? 0) < loadedAfterMs);
    for (let start = 0; start < missing.length; start += BATCH_MAX) {
      const batch = missing.slice(start, start + BATCH_MAX);
      try {
        const { items } = await this.#client.http.call("list_users", { user: batch });
        const names = new Map(items.map((item) => [item.user, item.name ?? item.user]));
        for (const id of batch) this.set(id, { name: names.get(id) ?? this.get(id).name });
      } catch {
        break; // Offline: ids or saved names are shown, and the next page loads them.
      }
    }
    if (missing.length > 0) this.#saveNames();
  }

  // Each picture needs a request. A few are loaded at a time, the most recently shown first.
  // Pictures of people who are no longer visible are not loaded.

  #queuePicture(id: string): void {
    const cached = this.#people.get(id);
    if (cached === undefined || id === "" || id.startsWith("ai-")) return;
    if (cached.pictureUntilMs > Date.now()) return;
    cached.pictureUntilMs = Date.now() + FRESH_MS;
    this.#pictures.push(id);
    this.#loadPictures();
  }

  #loadPictures(): void {
    while (this.#loadingPictures < PICTURE_LOADS_MAX) {
      const id = this.#pictures.pop();
      if (id === undefined) return;
      const cached = this.#people.get(id);
      if (cached !== undefined && !this.#isShown(id)) {
        cached.pictureUntilMs = 0;
        continue;
      }
      this.#loadingPictures += 1;
      void this.#loadPicture(id).finally(() => {
        this.#loadingPictures -= 1;
        this.#loadPictures();
      });
    }
  }

  async #loadPicture(id: string): Promise<void> {
    let picture: string | null = null;
    let avatar: string | null = null;
    let linkUntilMs = 0;
    let untilMs = Date.now() + FRESH_MS;
    try {
      const { http } = this.#client;
      const profile = await http.call("get_profile", { user: id });
      if (profile.name !== null) this.set(id, { name: profile.name });
      ({ avatar } = profile);
      const before = this.#people.get(id);
      if (avatar !== null && before?.avatar === avatar && before.linkUntilMs > Date.now()) {
        ({ linkUntilMs } = before);
        ({ picture } = before.person);
      } else if (avatar !== null) {
        // Until the server has made the thumbnail, the link is to the whole picture.
        const link = await http.call("get_avatar", { user: id, thumb: 1 });
        picture = link.url;
        if (link.attachment.thumb !== true) avatar = null; // requested again at the next refresh
        linkUntilMs = Date.now() + Math.max(LINK_MARGIN_MS, link.expires_s * 1000 - LINK_MARGIN_MS);
      }
      if (picture !== null) untilMs = linkUntilMs;
    } catch (error) {
      if (error instanceof ChatError && error.isTemporary) {
        picture = this.get(id).picture;
        untilMs = Date.now() + LINK_MARGIN_MS;
      }
    }
    const cached = this.#people.get(id);
    if (cached === undefined) return;
    Object.assign(cached, { pictureUntilMs: untilMs, avatar, linkUntilMs });
    if (cached.person.picture === picture) return;
    cached.person = { ...cached.person, picture };
    for (const listener of this.#listeners.get(id) ?? []) listener();
  }

  #saveNames(): void {
    const people = [...this.#people.values()].map(({ person }) => person);
    const pairs = people.filter(({ id, name }) => id !== name).map(({ id, name }) => [id, name]);
    browserStorage.setJson(getStorageKey(this.#client.user), pairs.slice(-NAMES_MAX));
  }
}

function createCachedPerson(id: string, name = id): CachedPerson {
  return {
    person: { id, name, picture: null },
    loadedAtMs: 0,
    pictureUntilMs: 0,
    avatar: null,
    linkUntilMs: 0,
  };
}

const getStorageKey = (user: string): string => `tierchat.people.${user}`;

function readNames(user: string): [string, string][] {
  return browserStorage.getJson<[string, string][]>(getStorageKey(user)) ?? [];
}

const directories = new WeakMap<ChatClient, Directory>();

/** Return the directory of a client. */
export function getDirectory(client: ChatClient): Directory {
  let directory = directories.get(client);
  if (directory === undefined) directories.set(client, (directory = new Directory(client)));
  return directory;
}

/** Return a person; the component renders again when the person changes. */
export function usePerson(id: string): Person {
  const directory = getDirectory(useClient());
  const subscribe = useCallback(
    (listener: () => void) => directory.subscribe(id, listener),
    [directory, id],
  );
  return useSyncExternalStore(subscribe, () => directory.get(id));
}

/** Refresh visible people: on focus of the window, when they send messages, and at intervals. */
export function useDirectoryRefresh(): void {
  const client = useClient();
  useEffect(() => {
    const directory = getDirectory(client);
    const refresh = (): void => directory.refresh();
    addEventListener("focus", refresh);
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") refresh();
    }, IDLE_REFRESH_MS);
    const unsubscribe = client.on((event) => {
      if (event.type === "messageAdded") directory.refresh(event.message.sender);
    });
    return () => {
      removeEventListener("focus", refresh);
      clearInterval(timer);
      unsubscribe();
      directory.stopRefresh();
    };
  }, [client]);
}
