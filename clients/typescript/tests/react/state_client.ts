// A client without I/O: the state machine and the chats of the SDK, with frames from the test.

import { Chat, type ChatClient, type ChatEvent, type HttpClient } from "tierchat";
import * as sdk from "tierchat/state";
import { Preferences } from "#dist/client/chat_preferences.js";
import type { ChatDescription, PendingOperation } from "#dist/engine/backend.js";
import { StateView } from "#dist/engine/state_view.js";

type Respond = (fields: sdk.Fields) => Promise<sdk.Fields>;

/** The part of `ChatClient` that the hooks use. */
export class StateClient {
  readonly state: sdk.ClientState;
  readonly view: StateView;
  isLeader = true;
  error: Error | null = null;
  /** The API, for tests that have one. */
  http: HttpClient | null = null;
  readonly preferences = new Preferences(() => {
    throw new Error("there is no API");
  });
  /** Returns the response to a request; by default there is none. */
  respond: Respond = () => new Promise(() => {});
  readonly requests: sdk.Fields[] = [];
  readonly notified: sdk.Fields[] = [];
  readonly listeners = new Set<(event: ChatEvent) => void>();
  readonly changeListeners = new Set<(chats: ReadonlySet<string>) => void>();
  readonly #drafts = new Map<string, string>();
  readonly #chats = new Map<string, Chat>();
  #connection = 0;
  #refs = 0;
  #seq = 0;

  constructor(state = new sdk.ClientState("phone")) {
    this.state = state;
    this.view = new StateView(this.state);
  }

  /** This object, typed as the client of `ChatProvider`. */
  get asClient(): ChatClient {
    return this as unknown as ChatClient;
  }

  get user(): string {
    return this.state.user;
  }

  get isOnline(): boolean {
    return this.state.isOnline;
  }

  get chats(): Chat[] {
    return this.view
      .listChats()
      .reverse()
      .map((id) => this.chat(id));
  }

  chat(id: string): Chat {
    let chat = this.#chats.get(id);
    if (chat === undefined) {
      const submit = this.#submit.bind(this);
      const owner = { backend: this, view: this, http: this.http, submit };
      chat = new Chat(id, owner as unknown as ConstructorParameters<typeof Chat>[1]);
      this.#chats.set(id, chat);
    }
    return chat;
  }

  on(listener: (event: ChatEvent) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  onChange(listener: (chats: ReadonlySet<string>) => void): () => void {
    this.changeListeners.add(listener);
    return () => this.changeListeners.delete(listener);
  }

  async loadChats(): Promise<{ chats: Chat[]; next: string | null }> {
    const response = await this.request({ type: "chats" });
    return { chats: [], next: (response["next"] as string | undefined) ?? null };
  }

  watch(users: string[]): void {
    this.state.watch(users);
    this.#recordUserFrames();
  }

  unwatch(users: string[]): void {
    this.state.unwatch(users);
    this.#recordUserFrames();
  }

  #recordUserFrames(): void {
    const frames = this.state.popFrames();
    this.notified.push(...frames.filter(({ type }) => type === "watch" || type === "unwatch"));
  }

  // the view and the backend of chats

  describe(chat: string): ChatDescription | null {
    return this.view.describe(chat);
  }

  messages(chat: string): readonly sdk.Entry[] {
    return this.view.messages(chat);
  }

  pending(chat: string): PendingOperation[] {
    return this.view.pending(chat);
  }

  draft(chat: string): string {
    return this.#drafts.get(chat) ?? "";
  }

  openChat(): void {}

  setDraft(chat: string, text: string): void {
    this.#drafts.set(chat, text);
    for (const listener of this.changeListeners) listener(new Set([chat]));
  }

  applyInfo(info: never): void {
    this.state.applyInfo(info);
    this.state.touched.add((info as { chat: string }).chat);
    this.flush();
  }

  async request(fields: sdk.Fields): Promise<sdk.Fields> {
    this.requests.push(fields);
    const response = await this.respond(fields);
    if (fields.type === "history") {
      const before = (fields["before"] as number | undefined) ?? null;
      this.state.applyHistory(response as never, before === null, before);
    }
    if (fields.type === "chats") this.state.applyChatList(response as never);
    this.flush();
    return response;
  }

  notify(fields: sdk.Fields): void {
    this.notified.push(fields);
  }

  #submit(chat: string, fields: sdk.Fields, ref?: string): { ref: string } {
    const name = ref ?? `ref-${(this.#refs += 1)}`;
    this.state.enqueue(sdk.createOutboxEntry(name, chat, { ...fields, chat, ref: name }), 0);
    this.flush();
    return { ref: name };
  }

  // inputs of the test

  /** Deliver the outputs of the state, as the engine does. */
  flush(events = this.state.popQueuedEvents()): void {
    const touched = this.view.popTouched();
    this.deliver(
      events.map(({ event }) => event),
      touched,
    );
  }

  /** Deliver events and changes. */
  deliver(events: ChatEvent[], touched: ReadonlySet<string>): void {
    for (const event of events) {
      this.preferences.apply(event);
      for (const listener of this.listeners) listener(event);
    }
    if (events.length > 0 || touched.size > 0) {
      for (const listener of this.changeListeners) listener(touched);
    }
  }

  /** Connect as user alice. */
  connect(): void {
    const welcome = { type: "welcome", user: "alice", epoch: "e1", seq: this.#seq };
    this.#connection = this.state.handleWelcome(welcome, 0);
    this.flush();
  }

  /** Lose the connection. */
  disconnect(): void {
    this.state.handleDisconnect(0);
    this.deliver([{ type: "disconnected", reason: "lost", retryInS: 1 }], new Set());
  }

  /** Receive a frame. */
  receive(frame: sdk.Fields): void {
    this.state.handleFrame(this.#connection, frame, 0);
    this.flush();
  }

  /** Receive an entry of a chat. */
  entry(chat: string, seq: number, fields: Partial<sdk.Entry> = {}): void {
    this.#seq += 1;
    const message = buildEntry(chat, seq, fields);
    this.receive({ type: "event", epoch: "e1", seq: this.#seq, kind: message.kind, chat, message });
  }
}

/** Return an entry of a chat; by default a message of bob. */
export function buildEntry(chat: string, seq: number, fields: Partial<sdk.Entry> = {}): sdk.Entry {
  const names = { mid: `${chat}-${seq}`, sender: "bob", ref: `bob-${chat}-${seq}` };
  return { seq, ts: seq * 1000, chat, ...names, kind: "text", body: `text ${seq}`, ...fields };
}
