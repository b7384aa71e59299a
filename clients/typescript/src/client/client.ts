// `ChatClient`: an auto-reconnecting, offline-first client for one device.

import type { Backend, Listener, Operation } from "../engine/backend.js";
import { Engine } from "../engine/engine.js";
import { EventQueue } from "../engine/event_queue.js";
import type { ClientOptions } from "../engine/options.js";
import type { ChatInfo, ChatsPage, Requests, SessionInfo } from "../generated/frames.js";
import type { Attachment } from "../generated/http.js";
import { downloadFile, type UploadOptions, uploadPicture } from "../http/files.js";
import { HttpClient } from "../http/http_client.js";
import { type NativePushToken, registerPush, unregisterPush } from "../http/push.js";
import { DEFAULT_BOUNDS } from "../state/bounds.js";
import { type QueuedEvent, REQUEST_TIMEOUT_S } from "../state/client_state.js";
import { ChatError } from "../state/errors.js";
import { type Acked, type ChatEvent, type EventOf, filterEvents } from "../state/events.js";
import type { Fields } from "../state/model.js";
import { newRef } from "../state/refs.js";
import { canShareTabs, SharedBackend } from "../tabs/shared_backend.js";
import { Chat, type ChatOwner } from "./chat.js";
import { Preferences } from "./chat_preferences.js";
import { DraftSync } from "./draft_sync.js";
import { Sending } from "./sending.js";

const CONNECT_MS = 10_000;

interface PendingAck {
  operation: Operation;
  resolve: (acked: Acked) => void;
  reject: (error: Error) => void;
}

/** A page of the chat list. `next` is the value of `after` for the next page, or null. */
export interface ChatListPage {
  chats: Chat[];
  next: string | null;
}

/**
 * A chat client for one device.
 *
 * While the client is open, each event is delivered once and in order. With a store, the next
 * client resumes after the last consumed event. After a crash, the most recent events may be
 * delivered twice; none is lost. A sent operation stays in the outbox, under the same `ref`, until
 * the server has stored it.
 *
 * @example
 * ```ts
 * const client = new ChatClient({ url, getToken });
 * await client.connect();
 * client.chat(id).send({ body: "Hello" });
 * for await (const event of client.events()) console.log(event);
 * ```
 */
export class ChatClient {
  /** The user's chat preferences, such as pinned and archived. Needs `apiUrl`. */
  readonly preferences: Preferences;
  readonly #options: ClientOptions;
  readonly #queue: EventQueue;
  readonly #chats = new Map<string, Chat>();
  readonly #pendingAcks = new Map<string, PendingAck>(); // ref → caller that waits for the ack
  readonly #listeners = new Set<(event: ChatEvent) => void>();
  readonly #changeListeners = new Set<(chats: ReadonlySet<string>) => void>();
  readonly #owner: ChatOwner;
  readonly #http: HttpClient | null;
  readonly #drafts: DraftSync | null;
  #backend: Backend | null = null;
  #engine: Engine | null = null;
  #shared: SharedBackend | null = null;
  #failure: Error | null = null;
  #isStarted = false;
  #hasReader = false;
  #wakeReader: () => void = () => {};

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#queue = new EventQueue(options.bounds?.eventsMax ?? DEFAULT_BOUNDS.eventsMax);
    const { apiUrl, getToken } = options;
    this.#http = apiUrl === undefined ? null : new HttpClient({ apiUrl, getToken });
    this.preferences = new Preferences(() => this.http);
    this.preferences.onChange((chats) => this.#clearChats(chats));
    const read = (chat: string): string | null => this.#backend?.draft(chat) ?? null;
    const write = (chat: string, text: string): void => this.#backend?.setDraft(chat, text);
    const isSynced = options.syncDrafts === true;
    this.#drafts = isSynced ? new DraftSync(this.preferences, read, write) : null;
    const client = this;
    this.#owner = {
      get backend() {
        return client.#getBackend();
      },
      get view() {
        return client.#backend;
      },
      get http() {
        return client.http;
      },
      drafts: this.#drafts,
      submit: this.#send.bind(this),
    };
  }

  // lifecycle

  /**
   * Load the store and connect.
   *
   * @throws {@link ChatError} `unavailable`: no gateway answered in time; `unauthenticated`: the
   * token is rejected; `conflict`: the store belongs to another user, or the device is in use.
   */
  async connect(): Promise<void> {
    if (this.#isStarted) throw new ChatError("conflict", "connect was already called");
    this.#isStarted = true;
    try {
      await this.#start();
    } catch (error) {
      await this.close();
      throw error;
    }
    if (this.#drafts !== null) void this.#loadPreferences();
  }

  async #start(): Promise<void> {
    const { connectTimeoutMs = CONNECT_MS, isOfflineFirst = false } = this.#options;
    const { shareTabs, store } = this.#options;
    const listener = {
      onEvents: this.#onEvents.bind(this),
      onChange: this.#onChange.bind(this),
      onEnd: this.#onEnd.bind(this),
    };
    const device = `js-${newRef().slice(0, 12)}`;
    const isShared = shareTabs !== undefined && store !== undefined && (await canShareTabs());
    if (this.#failure !== null) throw this.#failure; // closed meanwhile
    if (isShared) {
      const create = (tabListener: Listener): Engine => {
        return new Engine(this.#options, device, tabListener, new EventQueue(Infinity));
      };
      this.#backend = this.#shared = new SharedBackend(shareTabs, create, listener);
      this.#shared.onTakeover = () => this.#resubmit();
      await this.#shared.start(connectTimeoutMs, isOfflineFirst);
      return;
    }
    this.#backend = this.#engine = new Engine(this.#options, device, listener, this.#queue);
    await this.#engine.start();
    if (isOfflineFirst && this.#engine.user !== "") return;
    await this.#engine.waitForWelcome(connectTimeoutMs);
  }

  /** Close the connection and save the state. */
  async close(): Promise<void> {
    this.#drafts?.flush();
    this.#onEnd(new ChatError("unavailable", "the client is closed"));
    await this.#engine?.stop();
    await this.#shared?.stop();
  }

  /** Close the client and delete its data from the store, for a logout. */
  async forget(): Promise<void> {
    await this.close();
    await this.#options.store?.delete();
  }

  #getBackend(): Backend {
    if (this.#failure !== null) throw this.#failure;
    if (this.#backend === null) throw new ChatError("unavailable", "call `connect` first");
    return this.#backend;
  }

  // state

  /** The user id of the token; "" until it is known. */
  get user(): string {
    return this.#backend?.user ?? "";
  }

  /** The error after which the client does not reconnect; null while the client runs. */
  get error(): Error | null {
    return this.#failure;
  }

  /** The name of this device. */
  get device(): string {
    return this.#backend?.device ?? "";
  }

  /** True while there is a connection. */
  get isOnline(): boolean {
    return this.#backend?.isOnline ?? false;
  }

  /** True if this tab has the connection; always true without `shareTabs`. */
  get isLeader(): boolean {
    return this.#shared?.isLeader ?? true;
  }

  /** The chats on this device, most recently active first. */
  get chats(): Chat[] {
    return (this.#backend?.listChats() ?? []).reverse().map((id) => this.chat(id));
  }

  /** Return a chat by its id. */
  chat(id: string): Chat {
    let chat = this.#chats.get(id);
    if (chat === undefined) {
      chat = new Chat(id, this.#owner);
      this.#chats.set(id, chat);
    }
    return chat;
  }

  /** Typed client of the HTTP API. Needs `apiUrl`. */
  get http(): HttpClient {
    if (this.#http === null) {
      throw new ChatError("bad_request", "apiUrl: is required for files, pins, push and `http`");
    }
    return this.#http;
  }

  // events

  /**
   * Iterate over all events, including events that arrived before this call. Use one iterator.
   *
   * Unconsumed events stay on the server. The iterator ends when the client is closed; it throws if
   * the client cannot reconnect.
   */
  async *events(): AsyncGenerator<ChatEvent, void, void> {
    this.#hasReader = true;
    for (;;) {
      for (let event = this.#queue.pop(); event !== undefined; event = this.#queue.pop()) {
        yield event;
        this.#engine?.onConsumed();
      }
      if (this.#failure !== null) {
        if (this.#failure.message === "the client is closed") return;
        throw this.#failure;
      }
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
  }

  /**
   * Call `listener` for each event, or for each event of a type; return a function that removes it.
   *
   * The first listener also receives earlier events, unless `events` is used.
   *
   * @example `client.on("messageAdded", ({ chat, message }) => show(chat, message.body));`
   */
  on(listener: (event: ChatEvent) => void): () => void;
  on<Type extends ChatEvent["type"]>(
    type: Type,
    listener: (event: EventOf<Type>) => void,
  ): () => void;
  on<Type extends ChatEvent["type"]>(
    ...args: [(event: ChatEvent) => void] | [Type, (event: EventOf<Type>) => void]
  ): () => void {
    const listener = args.length === 1 ? args[0] : filterEvents(...args);
    this.#listeners.add(listener);
    if (!this.#hasReader) {
      for (let event = this.#queue.pop(); event !== undefined; event = this.#queue.pop()) {
        listener(event);
      }
      this.#engine?.onConsumed();
    }
    return () => this.#listeners.delete(listener);
  }

  /** Call `listener` with the ids of changed chats; return a function that removes it. */
  onChange(listener: (chats: ReadonlySet<string>) => void): () => void {
    this.#changeListeners.add(listener);
    return () => this.#changeListeners.delete(listener);
  }

  #onEvents(events: QueuedEvent[]): void {
    const isQueued = this.#hasReader || this.#listeners.size === 0;
    for (const queued of events) {
      this.#resolveAck(queued.event);
      this.preferences.apply(queued.event);
      if (queued.event.type === "connected") void this.#loadPreferences();
      if (isQueued) this.#queue.put(queued);
      if (this.#shared !== null) this.#queue.dropOldest();
      for (const listener of this.#listeners) listener(queued.event);
    }
    this.#wakeReader();
  }

  async #loadPreferences(): Promise<void> {
    try {
      if (this.#drafts === null) await this.preferences.onConnected();
      else await this.preferences.load();
    } catch {
      return; // loaded after the next connection
    }
    this.#drafts?.onConnected(this.#backend?.listChats() ?? []);
  }

  #resolveAck(event: ChatEvent): void {
    if (event.type !== "acked" && event.type !== "refused") return;
    const pending = this.#pendingAcks.get(event.ref);
    this.#pendingAcks.delete(event.ref);
    if (event.type === "acked") pending?.resolve(event);
    else pending?.reject(event.error);
  }

  /** Delete the messages of chats that the user has cleared on any device. */
  #clearChats(chats: Iterable<string>): void {
    for (const chat of chats) {
      const { clearedUpto } = this.preferences.get(chat);
      const description = clearedUpto === 0 ? null : (this.#backend?.describe(chat) ?? null);
      if (description !== null && (description.clearedUpto ?? 0) < clearedUpto) {
        this.#backend?.clearChat(chat, clearedUpto);
      }
    }
  }

  #onChange(chats: ReadonlySet<string>): void {
    this.#clearChats(chats);
    for (const listener of this.#changeListeners) listener(chats);
  }

  #onEnd(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#pendingAcks.values()) reject(this.#failure);
    this.#pendingAcks.clear();
    this.#wakeReader();
    this.#onChange(new Set());
  }

  // operations

  #send(chat: string, fields: Fields, ref = newRef()): Sending {
    const operation = { ref, chat, fields: { ...fields, chat, ref } };
    const previous = this.#pendingAcks.get(ref);
    const acked = new Promise<Acked>((resolve, reject) => {
      this.#pendingAcks.set(ref, {
        operation,
        resolve: (event) => {
          previous?.resolve(event);
          resolve(event);
        },
        reject: (error) => {
          previous?.reject(error);
          reject(error);
        },
      });
    });
    void this.#submit(operation);
    return new Sending(ref, acked);
  }

  async #submit(operation: Operation): Promise<void> {
    const { ref, chat } = operation;
    try {
      const acked = await this.#getBackend().submit(operation);
      if (acked !== null) this.#resolveAck(acked);
    } catch (error) {
      if (error instanceof ChatError && this.#failure === null) {
        this.#onEvents([{ event: { type: "refused", ref, chat, error }, before: null }]);
      } else {
        this.#pendingAcks.get(ref)?.reject(error as Error);
        this.#pendingAcks.delete(ref);
      }
    }
  }

  /** Submit the unconfirmed operations to the new leader, with the same refs. */
  #resubmit(): void {
    for (const { operation } of [...this.#pendingAcks.values()]) void this.#submit(operation);
  }

  // chats and users

  /** Load a page of the user's chats, most recent activity first. */
  async loadChats(options: { after?: string; limit?: number } = {}): Promise<ChatListPage> {
    const response = await this.#request({ type: "chats", limit: 50, ...options });
    const page = response as unknown as ChatsPage;
    return { chats: page.chats.map(({ chat }) => this.chat(chat)), next: page.next ?? null };
  }

  /** Return the direct chat with another user. */
  openDirect(user: string): Promise<Chat> {
    return this.#requestChat({ type: "open_direct", user });
  }

  /** Create a group. */
  createGroup(members: string[], name?: string): Promise<Chat> {
    const optional = name === undefined ? {} : { name };
    return this.#requestChat({ type: "create_chat", members, ref: newRef(), ...optional });
  }

  /** Join a group that the user was invited to. */
  acceptInvitation(chat: string): Promise<Chat> {
    return this.#requestChat({ type: "accept_invitation", chat, ref: newRef() });
  }

  /** Decline an invitation without notifying anyone. */
  async declineInvitation(chat: string): Promise<void> {
    await this.#request({ type: "decline_invitation", chat });
  }

  /** Block a user: neither user can message or invite the other. */
  async block(user: string): Promise<void> {
    await this.#request({ type: "block", user });
  }

  /** Unblock a user. */
  async unblock(user: string): Promise<void> {
    await this.#request({ type: "unblock", user });
  }

  /** Subscribe to the presence of users; it arrives as `signalReceived` of kind `presence`. */
  watch(users: string[]): void {
    this.#getBackend().setWatched(users, true);
  }

  /** Unsubscribe from the presence of users. */
  unwatch(users: string[]): void {
    this.#getBackend().setWatched(users, false);
  }

  /** Report whether the app is in the foreground: for presence, push and faster reconnects. */
  setActive(isActive: boolean): void {
    this.#getBackend().notify({ type: "state", state: isActive ? "fg" : "bg" });
  }

  // AI companions

  /** Start a session with a companion and return its chat. */
  createSession(companion: string): Promise<Chat> {
    return this.#requestChat({ type: "create_session", companion, ref: newRef() });
  }

  /** Return the chat of the active session with a companion. */
  getSession(companion: string): Promise<Chat> {
    return this.#requestChat({ type: "get_session", companion });
  }

  /** End the active session, start a new one, and return its chat. */
  renewSession(companion: string): Promise<Chat> {
    return this.#requestChat({ type: "renew_session", companion, ref: newRef() });
  }

  /** End the active session with a companion. */
  async deleteSession(companion: string): Promise<SessionInfo> {
    const response = await this.#request({ type: "delete_session", companion });
    return response["session"] as SessionInfo;
  }

  /**
   * Send any other request of the protocol and return its response.
   *
   * @example `await client.request({ type: "companions", limit: 20 })`
   */
  async request<Type extends keyof Requests>(
    fields: Omit<Requests[Type]["frame"], "id"> & { type: Type },
  ): Promise<Requests[Type]["reply"]> {
    return (await this.#request({ ...fields })) as unknown as Requests[Type]["reply"];
  }

  // files and push

  /** Download a file of message `seq`, or its thumbnail. */
  download(file: string, options: { seq?: number; isThumb?: boolean } = {}): Promise<Blob> {
    return downloadFile(this.http, file, options);
  }

  /** Upload a picture for a post, a profile or a group. */
  uploadPicture(file: Blob, options: UploadOptions = {}): Promise<Attachment> {
    return uploadPicture(this.http, file, options);
  }

  /** Register this device for push notifications; return the id of the registration. */
  registerPush(target: PushSubscription | NativePushToken): Promise<string> {
    return registerPush(this.http, target);
  }

  /** Delete a push registration. */
  unregisterPush(id: string): Promise<void> {
    return unregisterPush(this.http, id);
  }

  async #request(fields: Fields): Promise<Fields> {
    return this.#getBackend().request(fields, REQUEST_TIMEOUT_S);
  }

  async #requestChat(fields: Fields): Promise<Chat> {
    const response = await this.#request(fields);
    return this.chat((response["chat"] as ChatInfo).chat);
  }
}
