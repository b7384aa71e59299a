// Names and pictures of people, for all pages: loaded in batches, and kept for offline starts.

import { useCallback, useSyncExternalStore } from "react";
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
const FRESH_MS = 10 * 60_000; // then a name is loaded again when it is shown
const KEPT_MAX = 500;
const PICTURES_AT_ONCE = 4;
const EARLY_MS = 30_000; // a link this close to its end is replaced

interface Known {
  person: Person;
  loadedAtMs: number;
  /** Until then, the picture is not requested again. */
  pictureUntilMs: number;
}

/** Loads people as they are shown. */
class Directory {
  readonly #client: ChatClient;
  readonly #known = new Map<string, Known>();
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #wanted = new Set<string>();
  readonly #pictures: string[] = [];
  #loadingPictures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: ChatClient) {
    this.#client = client;
    for (const [id, name] of readNames(client.user)) {
      this.#known.set(id, {
        person: { id, name, picture: null },
        loadedAtMs: 0,
        pictureUntilMs: 0,
      });
    }
  }

  get(id: string): Person {
    let known = this.#known.get(id);
    if (known === undefined) {
      known = { person: { id, name: id, picture: null }, loadedAtMs: 0, pictureUntilMs: 0 };
      this.#known.set(id, known);
    }
    return known.person;
  }

  subscribe(id: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(id) ?? new Set();
    this.#listeners.set(id, listeners.add(listener));
    const { loadedAtMs = 0 } = this.#known.get(id) ?? {};
    if (id !== "" && Date.now() - loadedAtMs > FRESH_MS) this.#want(id);
    this.#wantPicture(id);
    return () => listeners.delete(listener);
  }

  /** Replace what is known of a person, for example after a change of the own profile. */
  set(id: string, changes: Partial<Person>): void {
    const before = this.get(id);
    const person = { ...before, ...changes };
    const { pictureUntilMs = 0 } = this.#known.get(id) ?? {};
    this.#known.set(id, { person, loadedAtMs: Date.now(), pictureUntilMs });
    if (person.name === before.name && person.picture === before.picture) return;
    for (const listener of this.#listeners.get(id) ?? []) listener();
  }

  #want(id: string): void {
    this.#wanted.add(id);
    this.#timer ??= setTimeout(() => void this.#loadWanted(), BATCH_MS);
  }

  async #loadWanted(): Promise<void> {
    this.#timer = undefined;
    const wanted = [...this.#wanted];
    this.#wanted.clear();
    await this.load(wanted);
  }

  /** Load the names of these people, unless they are known. */
  async load(ids: readonly string[]): Promise<void> {
    const since = Date.now() - FRESH_MS;
    const unknown = ids.filter((id) => (this.#known.get(id)?.loadedAtMs ?? 0) < since);
    for (let start = 0; start < unknown.length; start += BATCH_MAX) {
      const user = unknown.slice(start, start + BATCH_MAX);
      try {
        const { items } = await this.#client.http.call("list_users", { user });
        const names = new Map(items.map((item) => [item.user, item.name]));
        for (const id of user) this.set(id, { name: names.get(id) ?? this.get(id).name });
      } catch {
        break; // Offline: the ids or the stored names are shown; the next page asks again.
      }
    }
    if (unknown.length > 0) this.#keep();
  }

  // Pictures take one request each. A few are loaded at a time: those shown last first, and none
  // for users who are no longer shown. A missing picture is requested again later.

  #wantPicture(id: string): void {
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
      if (known !== undefined && (this.#listeners.get(id)?.size ?? 0) === 0) {
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
    let untilMs = Date.now() + FRESH_MS;
    try {
      const { http } = this.#client;
      const profile = await http.call("get_profile", { user: id });
      if (profile.name !== null) this.set(id, { name: profile.name });
      if (profile.avatar !== null) {
        const link = await http.call("get_avatar", { user: id, thumb: 1 });
        picture = link.url;
        untilMs = Date.now() + Math.max(EARLY_MS, link.expires_s * 1000 - EARLY_MS);
      }
    } catch (error) {
      if (error instanceof ChatError && error.isTemporary) {
        picture = this.get(id).picture;
        untilMs = Date.now() + EARLY_MS;
      }
    }
    const known = this.#known.get(id);
    if (known === undefined) return;
    known.pictureUntilMs = untilMs;
    if (known.person.picture === picture) return;
    known.person = { ...known.person, picture };
    for (const listener of this.#listeners.get(id) ?? []) listener();
  }

  #keep(): void {
    const named = [...this.#known.values()].map(({ person }) => person);
    const pairs = named.filter(({ id, name }) => id !== name).map(({ id, name }) => [id, name]);
    try {
      localStorage.setItem(keyOf(this.#client.user), JSON.stringify(pairs.slice(-KEPT_MAX)));
    } catch {
      // Without storage, names are loaded at each start.
    }
  }
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

/** Return a person; the component renders again when more is known. */
export function usePerson(id: string): Person {
  const directory = directoryOf(useClient());
  const subscribe = useCallback(
    (listener: () => void) => directory.subscribe(id, listener),
    [directory, id],
  );
  return useSyncExternalStore(subscribe, () => directory.get(id));
}
