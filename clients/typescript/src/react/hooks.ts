// Hooks for the state of a client. A hook renders its component only when the result changes.

import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from "react";

import type { Chat } from "../client/chat.js";
import type { ChatPreferences } from "../client/chat_preferences.js";
import type { ChatEvent } from "../state/events.js";
import type { ChatListView } from "./chat_list.js";
import type { ClientStore, Connection } from "./client_store.js";
import type { ResponseProgress } from "./companion_progress.js";
import { listMembers, type Member } from "./members.js";
import type { MessagesView } from "./message_window.js";
import type { Presence } from "./presence.js";
import { useStore } from "./provider.js";
import { TypingSender } from "./typing.js";

type Listen = (store: ClientStore, listener: () => void) => () => void;

/** Return a value of the store, and render again when it changes. */
function useValue<T>(key: string, listen: Listen, read: (store: ClientStore) => T): T {
  const store = useStore();
  // biome-ignore lint/correctness/useExhaustiveDependencies: `key` determines `listen`
  const subscribe = useCallback((listener: () => void) => listen(store, listener), [store, key]);
  const get = (): T => read(store);
  return useSyncExternalStore(subscribe, get, get);
}

function useTopic<T>(topic: string, read: (store: ClientStore) => T): T {
  return useValue(topic, (store, listener) => store.subscribe(topic, listener), read);
}

/** Return the state of the connection. */
export function useConnection(): Connection {
  return useTopic("connection", (store) => store.getConnection());
}

/**
 * Return the loaded chats, most recently active first; load the first page if necessary.
 *
 * A chat is the same object until one of its properties changes, so `memo` skips the other rows.
 */
export function useChats(): readonly Chat[] {
  return useValue("chats", openList, ({ list }) => list.view.chats);
}

/** Return the chat list and a function that loads its next page. */
export function useChatList(): ChatListView {
  return useValue("chats", openList, ({ list }) => list.view);
}

function openList(store: ClientStore, listener: () => void): () => void {
  return store.openList(listener);
}

/** Return a snapshot of a chat. */
export function useChat(id: string): Chat {
  return useTopic(`chat:${id}`, (store) => store.getChat(id));
}

/**
 * Return the messages of a chat, from the oldest loaded one to the newest, without a gap.
 *
 * A message is the same object until it changes, so `memo` skips the other rows.
 */
export function useMessages(id: string): MessagesView {
  const listen: Listen = (store, listener) => store.openMessages(id, listener);
  return useValue(`messages:${id}`, listen, (store) => store.getMessages(id).view);
}

/** Return the unsent text of a chat, and a function that replaces it. */
export function useDraft(id: string): [text: string, setText: (text: string) => void] {
  const { client } = useStore();
  const text = useTopic(`chat:${id}`, () => client.chat(id).draft);
  const setText = useCallback(
    (changed: string) => {
      client.chat(id).draft = changed;
    },
    [client, id],
  );
  return [text, setText];
}

/** Return whether a chat has an unsent text, for its row in a list. */
export function useHasDraft(id: string): boolean {
  return useTopic(`chat:${id}`, ({ client }) => client.chat(id).draft !== "");
}

/** Return the members of a chat who are typing. */
export function useTyping(id: string): readonly string[] {
  return useTopic(`typing:${id}`, ({ typing }) => typing.get(id));
}

/** Return a function that sends typing indicators, for a text field. */
export function useSendTyping(id: string): (isTyping: boolean) => void {
  const { client } = useStore();
  const sender = useMemo(() => new TypingSender(client.chat(id)), [client, id]);
  useEffect(() => () => sender.set(false), [sender]);
  return useCallback((isTyping) => sender.set(isTyping), [sender]);
}

/** Return the presence of users, where it is known. At most 500 users in all components. */
export function usePresence(users: readonly string[]): ReadonlyMap<string, Presence> {
  const key = users.join(" ");
  const view = useMemo(() => new PresenceView(key === "" ? [] : key.split(" ")), [key]);
  const listen: Listen = (store, listener) => view.open(store, listener);
  return useValue(`presence:${key}`, listen, (store) => view.get(store));
}

/** The presence of some users; the same map until one changes. */
class PresenceView {
  readonly #users: readonly string[];
  #map: ReadonlyMap<string, Presence> = new Map();

  constructor(users: readonly string[]) {
    this.#users = users;
  }

  open(store: ClientStore, listener: () => void): () => void {
    const removers = this.#users.map((user) => store.subscribe(`presence:${user}`, listener));
    removers.push(store.presence.watch(this.#users));
    return () => {
      for (const remove of removers.reverse()) remove();
    };
  }

  get(store: ClientStore): ReadonlyMap<string, Presence> {
    const entries: [string, Presence][] = [];
    for (const user of this.#users) {
      const presence = store.presence.get(user);
      if (presence !== undefined) entries.push([user, presence]);
    }
    const isSame =
      entries.length === this.#map.size &&
      entries.every(([user, presence]) => this.#map.get(user) === presence);
    if (!isSame) this.#map = new Map(entries);
    return this.#map;
  }
}

/**
 * Return the members of a chat: owners and admins first. Empty until they are loaded.
 *
 * With `apiUrl`, this loads the roles and mutes of a group.
 */
export function useMembers(id: string): readonly Member[] {
  const listen: Listen = (store, listener) => store.openMembers(id, listener);
  const chat = useValue(`members:${id}`, listen, (store) => store.getChat(id));
  return useMemo(() => listMembers(chat), [chat]);
}

/** Return the user's preferences of a chat, such as archived or muted. Needs `apiUrl`. */
export function usePreferences(id: string): ChatPreferences {
  return useValue("preferences", openPreferences, ({ client }) => client.preferences.get(id));
}

/** Return chat → the user's preferences, for chats that have any. Needs `apiUrl`. */
export function useAllPreferences(): ReadonlyMap<string, ChatPreferences> {
  return useValue("preferences", openPreferences, ({ client }) => client.preferences.chats);
}

/** Return the ids of the pinned chats, in order. Needs `apiUrl`. */
export function usePinnedChats(): readonly string[] {
  return useValue("preferences", openPreferences, ({ client }) => client.preferences.pinned);
}

function openPreferences(store: ClientStore, listener: () => void): () => void {
  return store.openPreferences(listener);
}

/** Return the number of unread messages in all loaded chats. */
export function useUnread(): number {
  return useValue("chats", openList, ({ list }) => list.unread);
}

/** A response that an AI companion is writing, with a function that stops it. */
export interface CompanionResponse extends ResponseProgress {
  /** Stop the response; the text so far becomes the message. */
  readonly stop: () => Promise<void>;
}

/** Return the response that an AI companion is writing in a chat, or null. */
export function useCompanionResponse(id: string): CompanionResponse | null {
  const { client } = useStore();
  const listen: Listen = (store, listener) => store.openResponse(id, listener);
  const progress = useValue(`companion:${id}`, listen, (store) => store.companions.get(id));
  return useMemo(() => {
    return progress && { ...progress, stop: () => client.chat(id).stopResponse() };
  }, [client, id, progress]);
}

/** Call `listener` for each event of a type. The listener may change with each render. */
export function useEvent<T extends ChatEvent["type"]>(
  type: T,
  listener: (event: Extract<ChatEvent, { type: T }>) => void,
): void {
  const store = useStore();
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(
    () =>
      store.onEvent((event) => {
        if (event.type === type) latest.current(event as Extract<ChatEvent, { type: T }>);
      }),
    [store, type],
  );
}
