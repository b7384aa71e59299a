// State of a client for React: immutable snapshots, and subscriptions to their changes.
//
// There is one store per client. It listens to the client while a component uses it. A snapshot is
// the same object until its content changes. A change of a chat calls only the listeners of that
// chat, of the chat list and of the connection.

import type { Chat } from "../client/chat.js";
import type { ChatClient } from "../client/client.js";
import type { PendingOperation } from "../engine/backend.js";
import type { ChatEvent } from "../state/events.js";
import { ChatList } from "./chat_list.js";
import { CompanionProgress } from "./companion_progress.js";
import { MessageWindow } from "./message_window.js";
import { PresenceTable } from "./presence.js";
import { Topics } from "./topic_listeners.js";
import { TypingTable } from "./typing.js";

const WINDOWS_MAX = 20; // message windows without a component

/** State of the connection. */
export interface Connection {
  readonly isOnline: boolean;
  /** True if this tab has the connection. */
  readonly isLeader: boolean;
  /** The user id of the token; "" until it is known. */
  readonly user: string;
  /** The error after which the client does not reconnect; null while it runs. */
  readonly error: Error | null;
}

const stores = new WeakMap<ChatClient, ClientStore>();

/** Snapshots of a client's state, and subscriptions to them. */
export class ClientStore {
  readonly client: ChatClient;
  readonly topics = new Topics();
  readonly list: ChatList;
  readonly typing = new TypingTable((chat) => this.topics.notify(`typing:${chat}`));
  readonly presence: PresenceTable;
  readonly companions = new CompanionProgress((chat) => this.topics.notify(`companion:${chat}`));
  readonly #windows = new Map<string, MessageWindow>();
  readonly #operations = new Map<string, PendingOperation>(); // ref → operation in the outbox
  readonly #eventListeners = new Set<(event: ChatEvent) => void>();
  #connection: Connection = { isOnline: false, isLeader: true, user: "", error: null };
  #retainCount = 0;
  #stop: (() => void) | null = null;

  private constructor(client: ChatClient) {
    this.client = client;
    this.list = new ChatList(client, () => this.topics.notify("chats"));
    this.presence = new PresenceTable(client, (user) => this.topics.notify(`presence:${user}`));
  }

  /** Return the store of a client. */
  static get(client: ChatClient): ClientStore {
    const store = stores.get(client) ?? new ClientStore(client);
    stores.set(client, store);
    return store;
  }

  // subscriptions

  /** Listen to the client until the returned function is called. */
  retain(): () => void {
    this.#retainCount += 1;
    if (this.#stop === null) this.#start();
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      this.#retainCount -= 1;
      // Delayed, because strict mode removes the first components and adds them again.
      if (this.#retainCount === 0) queueMicrotask(() => this.#stopIfUnused());
    };
  }

  #stopIfUnused(): void {
    if (this.#retainCount > 0 || this.#stop === null) return;
    this.#stop();
    this.#stop = null;
    this.typing.clear();
    this.companions.clear();
    this.#windows.clear(); // they no longer receive changes
    this.#operations.clear();
  }

  /** Call `listener` when a topic changes; return a function that removes it. */
  subscribe(topic: string, listener: () => void): () => void {
    const release = this.retain();
    const unsubscribe = this.topics.subscribe(topic, listener);
    return () => {
      unsubscribe();
      release();
    };
  }

  /** Call `listener` for each event; return a function that removes it. */
  onEvent(listener: (event: ChatEvent) => void): () => void {
    // The same listener can be added twice.
    const entry = (event: ChatEvent): void => listener(event);
    this.#eventListeners.add(entry);
    const release = this.retain();
    return () => {
      this.#eventListeners.delete(entry);
      release();
    };
  }

  #start(): void {
    const removeChangeListener = this.client.onChange((chats) => this.#onChange(chats));
    const removePreferenceListener = this.client.preferences.onChange((chats) => {
      for (const id of chats) this.#windows.get(id)?.onCleared();
      this.topics.notify("preferences");
    });
    const removeEventListener = this.client.on((event) => this.#onEvent(event));
    this.#stop = () => {
      removeChangeListener();
      removeEventListener();
      removePreferenceListener();
    };
    this.#onChange(new Set(this.client.chats.map(({ id }) => id)));
    this.presence.onConnected();
  }

  #onChange(chats: ReadonlySet<string>): void {
    for (const id of chats) {
      for (const operation of this.client.chat(id).pending) {
        this.#operations.set(operation.ref, operation);
      }
      this.#windows.get(id)?.update();
      this.topics.notify(`chat:${id}`);
    }
    this.list.update(chats);
    this.topics.notify("connection");
  }

  #onEvent(event: ChatEvent): void {
    this.typing.apply(event);
    this.presence.apply(event);
    this.companions.apply(event);
    this.list.apply(event);
    if ("chat" in event && event.chat !== null) this.#windows.get(event.chat)?.apply(event);
    if (event.type === "connected") this.#onConnected();
    if (event.type === "restarted") {
      for (const window of this.#windows.values()) window.apply(event);
    }
    if (event.type === "refused") {
      const operation = this.#operations.get(event.ref);
      if (operation !== undefined) this.getMessages(event.chat).onRefused(operation, event.error);
    }
    if (event.type === "refused" || event.type === "acked") this.#operations.delete(event.ref);
    for (const listener of [...this.#eventListeners]) listener(event);
  }

  #onConnected(): void {
    this.presence.onConnected();
    if (this.topics.count("chats") > 0) void this.list.onConnected();
    for (const window of this.#windows.values()) window.onConnected();
    for (const chat of this.topics.listIds("members")) this.#loadMembers(chat);
    for (const chat of this.topics.listIds("companion")) this.#loadResponse(chat);
  }

  // snapshots

  /** Return the state of the connection. */
  getConnection(): Connection {
    const { isOnline, isLeader, user, error } = this.client;
    const last = this.#connection;
    const isSame =
      last.isOnline === isOnline &&
      last.isLeader === isLeader &&
      last.user === user &&
      last.error === error;
    if (!isSame) this.#connection = { isOnline, isLeader, user, error };
    return this.#connection;
  }

  /** Return a snapshot of a chat. */
  getChat(id: string): Chat {
    return this.client.chat(id).snapshot;
  }

  /** Return the message window of a chat. */
  getMessages(id: string): MessageWindow {
    let window = this.#windows.get(id);
    if (window === undefined) {
      window = new MessageWindow(this.client.chat(id), this.client, () => {
        this.topics.notify(`messages:${id}`);
      });
      this.#windows.set(id, window);
      this.#dropUnusedWindows();
    }
    return window;
  }

  /** Keep the chat list loaded until the returned function is called. */
  openList(listener: () => void): () => void {
    const unsubscribe = this.subscribe("chats", listener);
    void this.list.onConnected();
    return unsubscribe;
  }

  /** Keep the members of a chat loaded until the returned function is called. */
  openMembers(id: string, listener: () => void): () => void {
    const unsubscribe = this.subscribe(`chat:${id}`, listener);
    const close = this.subscribe(`members:${id}`, () => {}); // for `#onConnected`
    this.#loadMembers(id);
    return () => {
      close();
      unsubscribe();
    };
  }

  #loadMembers(id: string): void {
    const chat = this.client.chat(id);
    const isIncomplete = chat.kind === "group" && !chat.isComplete && !chat.isLeft;
    // Without an API or after a failure, the members from the chat list are shown.
    if (isIncomplete && this.client.isOnline) chat.load().catch(() => {});
  }

  /** Load the preferences of chats, and listen to their changes. */
  openPreferences(listener: () => void): () => void {
    const unsubscribe = this.subscribe("preferences", listener);
    const isFirst = this.topics.count("preferences") === 1;
    // Offline, they are loaded after the next connection.
    if (isFirst) this.client.preferences.load().catch(() => {});
    return unsubscribe;
  }

  /** Keep a chat's messages loaded until the returned function is called. */
  openMessages(id: string, listener: () => void): () => void {
    const window = this.getMessages(id);
    this.#windows.delete(id);
    this.#windows.set(id, window); // most recently used
    const unsubscribe = this.subscribe(`messages:${id}`, listener);
    const close = window.open();
    return () => {
      close();
      unsubscribe();
      this.#dropUnusedWindows();
    };
  }

  #dropUnusedWindows(): void {
    const unused = [...this.#windows].filter(([, { isDroppable }]) => isDroppable);
    for (const [id] of unused.slice(0, Math.max(0, unused.length - WINDOWS_MAX))) {
      this.#windows.delete(id);
    }
  }

  /** Keep the AI response in progress loaded until the returned function is called. */
  openResponse(id: string, listener: () => void): () => void {
    const unsubscribe = this.subscribe(`companion:${id}`, listener);
    this.#loadResponse(id);
    return unsubscribe;
  }

  #loadResponse(id: string): void {
    const chat = this.client.chat(id);
    if (!this.client.isOnline || chat.kind !== "companion") return;
    chat.loadResponse().catch(() => {}); // retried after the next connection
  }
}
