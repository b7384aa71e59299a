// Names and pictures of people, for all pages: loaded in batches, and saved for offline starts.
//
// People are loaded when they are shown. Visible people are reloaded when the user returns to the
// window, when they send a message, and every `IDLE_REFRESH_MS` while the window is visible. A
// refresh runs at most once per `REFRESH_MS` and reloads at most `REFRESHED_MAX` people, so that a
// message to a large group does not cause too many requests.

import { useCallback, useEffect, useSyncExternalStore } from "react";
import { ChatError, type ChatClient } from "tierchat";
import { useClient } from "tierchat/react";

/** A person as pages show them. */
export interface Person {
  id: string;
  /** The display name; the id until it is known, or if there is none. */
  name: string;
  /** URL of the picture, if it has been loaded. */
  picture: string | null;
}

const BATCH_MAX = 50;
const BATCH_MS = 30;
const FRESH_MS = 10 * 60_000; // older names are reloaded when they are shown
const REFRESH_MS = 60_000;
const REFRESHED_MAX = 20;
// At most 21 small requests of a visible window in this time: 350 a second of 10,000 windows.
const IDLE_REFRESH_MS = 10 * 60_000;
const SPREAD_MS = 3_000; // so that the members of a group do not send requests at the same time
const KEPT_MAX = 500;
const PICTURES_AT_ONCE = 4;
const EARLY_MS = 30_000; // a link that expires sooner is replaced

interface Known {
  person: Person;
  loadedAtMs: number;
  /** The picture is not requested again before this time. */
  pictureUntilMs: number;
  /** The file of the picture. `linkUntilMs`: when its link expires. */
  avatar: string | null;
  linkUntilMs: number;
}

/** Loads people as they are shown. */
class Directory {
  readonly #client: ChatClient;
  readonly #known = new Map<string, Known>();
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #queued = new Set<string>();
  readonly #pictures: string[] = [];
  #loadingPictures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #due = new Set<string>();
  #refreshedAtMs = 0;
  #refreshTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: ChatClient) {
    this.#client = client;
    for (const [id, name] of readNames(client.user)) {
      this.#known.set(id, newKnown(id, name));
    }
  }

  get(id: string): Person {
    let known = this.#known.get(id);
    if (known === undefined) {
      known = newKnown(id);
      this.#known.set(id, known);
    }
    return known.person;
  }

  subscribe(id: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(id) ?? new Set();
    this.#listeners.set(id, listeners.add(listener));
    const { loadedAtMs = 0 } = this.#known.get(id) ?? {};
    if (id !== "" && Date.now() - loadedAtMs > FRESH_MS) this.#queueName(id);
    this.#queuePicture(id);
    return () => listeners.delete(listener);
  }

  /** Update a person, for example after a change of the user's own profile. */
  set(id: string, changes: Partial<Person>): void {
    const before = this.get(id);
    const person = { ...before, ...changes };
    const known = this.#known.get(id) ?? newKnown(id);
    if (changes.picture !== undefined) known.avatar = null; // another file
    this.#known.set(id, { ...known, person, loadedAtMs: Date.now() });
    if (person.name === before.name && person.picture === before.picture) return;
    for (const listener of this.#listeners.get(id) ?? []) listener();
  }

  /** Schedule a reload of the visible people, or of the sender of a message. */
  refresh(sender?: string): void {
    const ids = sender === undefined ? [...this.#listeners.keys()] : [sender];
    for (const id of ids) if (this.#isShown(id)) this.#due.add(id);
    if (this.#due.size === 0 || this.#refreshTimer !== undefined) return;
    const spreadMs = sender === undefined ? 0 : Math.random() * SPREAD_MS;
    const waitMs = this.#refreshedAtMs + REFRESH_MS - Date.now();
    this.#refreshTimer = setTimeout(() => this.#refreshDue(), Math.max(spreadMs, waitMs));
  }

  /** Cancel the scheduled reload, at the end of the session. */
  stopRefresh(): void {
    clearTimeout(this.#refreshTimer);
    this.#refreshTimer = undefined;
    this.#due.clear();
  }

  #refreshDue(): void {
    this.#refreshTimer = undefined;
    if (document.visibilityState === "hidden") return; // continues when the user returns
    const loadedAtMs = (id: string): number => this.#known.get(id)?.loadedAtMs ?? 0;
    const oldMs = Date.now() - REFRESH_MS;
    const due = [...this.#due].filter((id) => this.#isShown(id) && loadedAtMs(id) < oldMs);
    this.#due.clear();
    if (due.length > 0) this.#refreshedAtMs = Date.now();
    due.sort((a, b) => loadedAtMs(a) - loadedAtMs(b));
    for (const id of due.slice(0, REFRESHED_MAX)) {
      Object.assign(this.#known.get(id) ?? {}, { loadedAtMs: 0, pictureUntilMs: 0 });
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

  /** Load the names of these people, unless they are known. */
  async load(ids: readonly string[]): Promise<void> {
    const since = Date.now() - FRESH_MS;
    const unknown = ids.filter((id) => (this.#known.get(id)?.loadedAtMs ?? 0) < since);
    for (let start = 0; start < unknown.length; start += BATCH_MAX) {
      const user = unknown.slice(start, start + BATCH_MAX);
      try {
        const { items } = await this.#client.http.call("list_users", { user });
        const names = new Map(items.map((item) => [item.user, item.name ?? item.user]));
        for (const id of user) this.set(id, { name: names.get(id) ?? this.get(id).name });
      } catch {
        break; // Offline: ids or saved names are shown, and the next page loads them.
      }
    }
    if (unknown.length > 0) this.#saveNames();
  }

  // Each picture takes one request. A few are loaded at a time, the most recently shown first.
  // Pictures of users who are no longer visible are not loaded.

  #queuePicture(id: string): void {
    const known = this.#known.get(id);
    if (known === undefined || id === "" || id.startsWith("ai-")) return;
    if (known.pictureUntilMs > Date.now()) return;
    known.pictureUntilMs = Date.now() + FRESH_MS;
    this.#pictures.push(id);
    this.#loadPictures();
  }

  #loadPictures(): void {
    while (this.#loadingPictures < PICTURES_AT_ONCE) {
      const id = this.#pictures.pop();
      if (id === undefined) return;
      const known = this.#known.get(id);
      if (known !== undefined && !this.#isShown(id)) {
        known.pictureUntilMs = 0;
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
      const before = this.#known.get(id);
      if (avatar !== null && before?.avatar === avatar && before.linkUntilMs > Date.now()) {
        ({ linkUntilMs } = before);
        ({ picture } = before.person);
      } else if (avatar !== null) {
        // Until the server has made the thumbnail, the link is to the whole picture.
        const link = await http.call("get_avatar", { user: id, thumb: 1 });
        picture = link.url;
        if (link.attachment.thumb !== true) avatar = null; // requested again at the next refresh
        linkUntilMs = Date.now() + Math.max(EARLY_MS, link.expires_s * 1000 - EARLY_MS);
      }
      if (picture !== null) untilMs = linkUntilMs;
    } catch (error) {
      if (error instanceof ChatError && error.isTemporary) {
        picture = this.get(id).picture;
        untilMs = Date.now() + EARLY_MS;
      }
    }
    const known = this.#known.get(id);
    if (known === undefined) return;
    Object.assign(known, { pictureUntilMs: untilMs, avatar, linkUntilMs });
    if (known.person.picture === picture) return;
    known.person = { ...known.person, picture };
    for (const listener of this.#listeners.get(id) ?? []) listener();
  }

  #saveNames(): void {
    const named = [...this.#known.values()].map(({ person }) => person);
    const pairs = named.filter(({ id, name }) => id !== name).map(({ id, name }) => [id, name]);
    try {
      localStorage.setItem(keyOf(this.#client.user), JSON.stringify(pairs.slice(-KEPT_MAX)));
    } catch {
      // Without storage, names are loaded at each start.
    }
  }
}

function newKnown(id: string, name = id): Known {
  return {
    person: { id, name, picture: null },
    loadedAtMs: 0,
    pictureUntilMs: 0,
    avatar: null,
    linkUntilMs: 0,
  };
}

const keyOf = (user: string): string => `tierchat.people.${user}`;

function readNames(user: string): [string, string][] {
  try {
    return JSON.parse(localStorage.getItem(keyOf(user)) ?? "[]") as [string, string][];
  } catch {
    return [];
  }
}

const directories = new WeakMap<ChatClient, Directory>();

/** Return the directory of a client. */
export function directoryOf(client: ChatClient): Directory {
  let directory = directories.get(client);
  if (directory === undefined) directories.set(client, (directory = new Directory(client)));
  return directory;
}

/** Return a person; the component renders again when the person changes. */
export function usePerson(id: string): Person {
  const directory = directoryOf(useClient());
  const subscribe = useCallback(
    (listener: () => void) => directory.subscribe(id, listener),
    [directory, id],
  );
  return useSyncExternalStore(subscribe, () => directory.get(id));
}

/** Refresh visible people: when the user returns, when they send messages, and at intervals. */
export function useDirectoryRefresh(): void {
  const client = useClient();
  useEffect(() => {
    const directory = directoryOf(client);
    const refresh = (): void => directory.refresh();
    addEventListener("focus", refresh);
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") refresh();
    }, IDLE_REFRESH_MS);
    const end = client.on((event) => {
      if (event.type === "messageAdded") directory.refresh(event.message.sender);
    });
    return () => {
      removeEventListener("focus", refresh);
      clearInterval(timer);
      end();
      directory.stopRefresh();
    };
  }, [client]);
}
