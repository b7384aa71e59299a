// One connection for all tabs of a browser.
//
// The tabs compete for a Web Lock. The tab that holds it is the leader: it has the engine, with
// the socket and the store. The other tabs mirror its state and send their calls to it over a
// BroadcastChannel.
//
// When the leader's tab closes, the browser grants the lock to another tab, which resumes from the
// store as the same device. Unanswered calls are sent to it again, with the same refs: nothing is
// lost or sent twice.

import {
  type Backend,
  type ChatDescription,
  type Listener,
  type Operation,
  type PendingOperation,
  withoutCursor,
} from "../engine/backend.js";
import type { Engine } from "../engine/engine.js";
import { MessageLists } from "../engine/message_lists.js";
import type { ChatInfo } from "../generated/frames.js";
import { ChatError } from "../state/errors.js";
import type { Acked } from "../state/events.js";
import { applyExpiry, type Entry, type Fields, isEqual, sortAscending } from "../state/model.js";
import { newRef } from "../state/refs.js";
import { EventFilter } from "./event_filter.js";
import { Publisher } from "./publisher.js";
import {
  type Calls,
  type ChatUpdate,
  decodeError,
  decodeEvent,
  encodeError,
  type Snapshot,
  type TabMessage,
} from "./tab_messages.js";

interface PendingCall {
  method: keyof Calls;
  args: unknown[];
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
}

/** Return whether tabs can share a connection on this platform. */
export async function canShareTabs(): Promise<boolean> {
  try {
    new BroadcastChannel("tierchat:probe").close();
    // Browsers refuse locks where they refuse storage.
    return await navigator.locks.request("tierchat:probe", { mode: "shared" }, () => true);
  } catch {
    return false;
  }
}

/** The backend of a tab: the leader's engine, or a mirror of it. */
export class SharedBackend implements Backend {
  /** Called when this tab has taken over the connection. */
  onTakeover: () => void = () => {};
  readonly #name: string;
  readonly #create: (listener: Listener) => Engine;
  readonly #listener: Listener;
  readonly #channel: BroadcastChannel;
  readonly #tab = newRef();
  readonly #filter = new EventFilter();
  readonly #abort = new AbortController();
  readonly #calls = new Map<number, PendingCall>();
  #lastCall = 0;
  #engine: Engine | null = null;
  #publisher: Publisher | null = null;
  #release: () => void = () => {};
  #isStopped = false;
  #checkReady: () => void = () => {};
  // mirrored state of the leader
  #user = "";
  #device = "";
  #isOnline = false;
  readonly #chats = new Map<string, ChatUpdate>();
  readonly #messages = new Map<string, Map<number, Entry>>(); // of opened chats
  readonly #outdatedChats = new Set<string>(); // opened chats whose messages may be outdated
  readonly #lists = new MessageLists();
  readonly #unconfirmedDrafts = new Map<string, number>(); // chat → calls without a response

  constructor(name: string, create: (listener: Listener) => Engine, listener: Listener) {
    this.#name = `tierchat:${name}`;
    this.#create = create;
    this.#listener = listener;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#receive(data as TabMessage);
  }

  get isLeader(): boolean {
    return this.#engine !== null;
  }

  /** Join the group of tabs. Wait for a connection; with `isOfflineFirst`, only for a state. */
  async start(timeoutMs: number, isOfflineFirst: boolean): Promise<void> {
    const isReady = (): boolean => this.isOnline || (isOfflineFirst && this.user !== "");
    const connected = new Promise<void>((resolve) => {
      this.#checkReady = () => {
        if (isReady()) resolve();
      };
    });
    const failed = new Promise<never>((_, reject) => {
      const options = { signal: this.#abort.signal };
      const lock = navigator.locks.request(this.#name, options, () => this.#runLeader());
      lock.catch((error: unknown) => {
        if (!this.#isStopped) {
          this.#listener.onEnd(error as Error);
          reject(error as Error);
        }
      });
    });
    failed.catch(() => {});
    this.#reload();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<never>((_, reject) => {
      const text = "cannot connect to a gateway: no response";
      timer = setTimeout(() => reject(new ChatError("unavailable", text)), timeoutMs);
    });
    try {
      await Promise.race([connected, failed, timeout]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Leave the group of tabs; the leader closes its connection first. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    try {
      await this.#engine?.stop();
    } finally {
      this.#release();
      this.#abort.abort();
      this.#channel.close();
    }
  }

  // leader

  /** Run the engine for as long as this tab holds the lock. */
  async #runLeader(): Promise<void> {
    if (this.#isStopped) return;
    const released = new Promise<void>((resolve) => {
      this.#release = resolve;
    });
    const engine = this.#create({
      onEvents: (events) => {
        this.#publisher?.publish(events, []);
        const fresh = this.#filter.apply(events);
        if (fresh.length > 0) this.#listener.onEvents(fresh);
        this.#checkReady();
      },
      onChange: (chats) => {
        this.#publisher?.publish([], chats);
        this.#listener.onChange(chats);
      },
      onEnd: (error) => {
        this.#post({ kind: "ended", error: encodeError(error) });
        this.#listener.onEnd(error);
      },
    });
    await engine.start();
    this.#engine = engine;
    this.#publisher = new Publisher(engine, (message) => this.#post(message));
    this.#post({ kind: "leading", leader: this.#tab });
    this.#checkReady();
    for (const [number, { method, args }] of [...this.#calls]) {
      this.#executeOwnCall(number, method, args);
    }
    this.onTakeover();
    this.#listener.onChange(new Set(engine.listChats()));
    await released;
  }

  /** Execute a call that this tab had sent to the previous leader. */
  #executeOwnCall(number: number, method: keyof Calls, args: unknown[]): void {
    const pending = this.#calls.get(number);
    this.#calls.delete(number);
    const engine = this.#engine;
    if (engine === null || pending === undefined) return;
    if (method === "submit") {
      engine.submit(...(args as Calls["submit"][0])).then(pending.resolve, pending.reject);
    } else if (method === "request") {
      engine.request(...(args as Calls["request"][0])).then(pending.resolve, pending.reject);
    } else if (method === "setDraft") {
      engine.setDraft(...(args as Calls["setDraft"][0]));
    } else if (method === "clearChat") {
      engine.clearChat(...(args as Calls["clearChat"][0]));
    } else if (method === "applyInfo") {
      engine.applyInfo(...(args as Calls["applyInfo"][0]));
    } else if (method === "setWatched") {
      engine.setWatched(...(args as Calls["setWatched"][0]));
    }
  }

  #post(message: TabMessage): void {
    if (!this.#isStopped || message.kind === "ended") this.#channel.postMessage(message);
  }

  // follower

  #receive(message: TabMessage): void {
    if (this.#isStopped) return;
    switch (message.kind) {
      case "call":
        void this.#publisher?.execute(message);
        break;
      case "answer":
        if (message.to === this.#tab) this.#handleAnswer(message);
        break;
      case "update":
        if (this.#engine === null) this.#applyUpdate(message);
        break;
      case "closed":
        this.#handleClosed(message.chat);
        break;
      case "leading":
        this.#retryCalls();
        break;
      case "ended":
        this.#listener.onEnd(decodeError(message.error));
        break;
    }
  }

  #handleAnswer({ number, result, error }: TabMessage & { kind: "answer" }): void {
    const pending = this.#calls.get(number);
    this.#calls.delete(number);
    if (error !== undefined) pending?.reject(decodeError(error));
    else pending?.resolve(result);
  }

  #applyUpdate({ user, device, isOnline, events, chats }: TabMessage & { kind: "update" }): void {
    this.#applySnapshot({ user, device, isOnline, chats });
    const fresh = this.#filter.apply(events.map((event) => withoutCursor(decodeEvent(event))));
    if (fresh.length > 0) this.#listener.onEvents(fresh);
    this.#listener.onChange(new Set(chats.map(({ chat }) => chat)));
    this.#checkReady();
  }

  #applySnapshot({ user, device, isOnline, chats }: Snapshot): void {
    this.#user = user;
    this.#device = device;
    this.#isOnline = isOnline;
    for (const update of chats) this.#applyChat(update);
  }

  #applyChat({ changed, removed, ...update }: ChatUpdate): void {
    const { chat } = update;
    const current = this.#chats.get(chat);
    if (current !== undefined) {
      if (isEqual(current.description, update.description)) {
        update.description = current.description;
      }
      // The draft of this tab is newer than the leader's.
      if (this.#unconfirmedDrafts.has(chat)) update.draft = current.draft;
    }
    if (update.description !== current?.description) this.#chats.delete(chat); // moved to the end
    this.#chats.set(chat, update);
    const messages = this.#messages.get(chat);
    if (messages === undefined) return;
    this.#lists.invalidate([chat]);
    for (const message of changed ?? []) messages.set(message.seq, message);
    for (const seq of removed ?? []) messages.delete(seq);
  }

  /** The leader no longer publishes a chat: reload its messages at their next use. */
  #handleClosed(chat: string): void {
    if (!this.#messages.has(chat)) return;
    this.#outdatedChats.add(chat);
    this.#listener.onChange(new Set([chat]));
  }

  /** Load the whole state from the leader. */
  #reload(): void {
    void this.#call("snapshot").then((snapshot) => {
      if (this.#engine !== null) return;
      this.#applySnapshot(snapshot);
      this.#listener.onChange(new Set(snapshot.chats.map(({ chat }) => chat)));
      this.#checkReady();
    }, ignore);
    for (const chat of [...this.#messages.keys()]) this.#load(chat);
  }

  #load(chat: string): void {
    void this.#call("openChat", chat).then((update) => {
      if (this.#engine !== null) return;
      this.#messages.set(chat, new Map());
      this.#applyChat(update);
      this.#listener.onChange(new Set([chat]));
    }, ignore);
  }

  /** After a leader change: retry the unanswered calls, and reload the state. */
  #retryCalls(): void {
    for (const [number, { method, args }] of [...this.#calls]) {
      this.#post({ kind: "call", from: this.#tab, number, method, args });
    }
    this.#reload();
    this.onTakeover();
  }

  #call<M extends keyof Calls>(method: M, ...args: Calls[M][0]): Promise<Calls[M][1]> {
    this.#lastCall += 1;
    const number = this.#lastCall;
    return new Promise((resolve, reject) => {
      this.#calls.set(number, { method, args, resolve: resolve as PendingCall["resolve"], reject });
      this.#post({ kind: "call", from: this.#tab, number, method, args });
    });
  }

  // backend

  async submit(operation: Operation): Promise<Acked | null> {
    return this.#engine?.submit(operation) ?? this.#call("submit", operation);
  }

  async request(fields: Fields, deadlineS: number): Promise<Fields> {
    return this.#engine?.request(fields, deadlineS) ?? this.#call("request", fields, deadlineS);
  }

  notify(fields: Fields): void {
    if (this.#engine !== null) this.#engine.notify(fields);
    else void this.#call("notify", fields).catch(ignore);
  }

  setWatched(users: string[], isWatched: boolean): void {
    if (this.#engine !== null) this.#engine.setWatched(users, isWatched);
    else void this.#call("setWatched", users, isWatched).catch(ignore);
  }

  clearChat(chat: string, upto: number): void {
    if (this.#engine !== null) this.#engine.clearChat(chat, upto);
    else void this.#call("clearChat", chat, upto).catch(ignore);
  }

  applyInfo(info: ChatInfo): void {
    if (this.#engine !== null) this.#engine.applyInfo(info);
    else void this.#call("applyInfo", info).catch(ignore);
  }

  setDraft(chat: string, text: string): void {
    if (this.#engine !== null) {
      this.#engine.setDraft(chat, text);
      return;
    }
    const current = this.#chats.get(chat) ?? { chat, description: null, pending: [], draft: "" };
    this.#chats.set(chat, { ...current, draft: text });
    this.#unconfirmedDrafts.set(chat, (this.#unconfirmedDrafts.get(chat) ?? 0) + 1);
    void this.#call("setDraft", chat, text)
      .catch(ignore)
      .then(() => {
        const remaining = (this.#unconfirmedDrafts.get(chat) ?? 1) - 1;
        if (remaining > 0) this.#unconfirmedDrafts.set(chat, remaining);
        else this.#unconfirmedDrafts.delete(chat);
      });
    this.#listener.onChange(new Set([chat]));
  }

  openChat(chat: string): void {
    if (this.#engine !== null) return;
    const isOpen = this.#messages.has(chat);
    if (isOpen && !this.#outdatedChats.delete(chat)) return;
    if (!isOpen) this.#messages.set(chat, new Map());
    this.#load(chat);
  }

  // view

  get user(): string {
    return this.#engine?.user ?? this.#user;
  }

  get device(): string {
    return this.#engine?.device ?? this.#device;
  }

  get isOnline(): boolean {
    return this.#engine?.isOnline ?? this.#isOnline;
  }

  listChats(): string[] {
    if (this.#engine !== null) return this.#engine.listChats();
    return [...this.#chats.values()]
      .filter(({ description }) => description !== null)
      .map(({ chat }) => chat);
  }

  describe(chat: string): ChatDescription | null {
    if (this.#engine !== null) return this.#engine.describe(chat);
    return this.#chats.get(chat)?.description ?? null;
  }

  messages(chat: string): readonly Entry[] {
    if (this.#engine !== null) return this.#engine.messages(chat);
    const messages = this.#messages.get(chat) ?? new Map<number, Entry>();
    const nowS = Date.now() / 1000;
    return this.#lists.get(chat, nowS, () =>
      sortAscending(messages.keys()).map((seq) => applyExpiry(messages.get(seq) as Entry, nowS)),
    );
  }

  pending(chat: string): PendingOperation[] {
    return this.#engine?.pending(chat) ?? this.#chats.get(chat)?.pending ?? [];
  }

  draft(chat: string): string {
    return this.#engine?.draft(chat) ?? this.#chats.get(chat)?.draft ?? "";
  }
}

function ignore(): void {}
