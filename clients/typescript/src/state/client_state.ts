// The client as a pure state machine: frames, commands and the time in, frames and events out.
//
// No I/O, no clock, no randomness: each input has the time `nowS`, in seconds of a monotonic clock.
//
// The state is the cursor, the loaded chats, the outbox and the open requests. Invariants:
//
// * within an epoch, the cursor advances one event at a time or to the cursor of a snapshot;
// * frames of a closed connection are ignored; the server sends their content again;
// * each seq of a chat is delivered once (`ChatLog`), each ref is acked once (`Outbox`).
// `tests/histories` has recorded inputs and outputs that this class and the Python SDK share.

import * as frames from "../generated/frames.js";
import { type Bounds, DEFAULT_BOUNDS } from "./bounds.js";
import { CatchUp } from "./catch_up.js";
import { ChatState } from "./chat.js";
import { CompanionResponses } from "./companion_responses.js";
import { ChatError } from "./errors.js";
import { type ChatEvent, findChangedChat, parseSignal, type QueuedEvent } from "./events.js";
import type { Cursor, Fields } from "./model.js";
import { isStoredRequired, Outbox, type OutboxEntry } from "./outbox.js";
import { OutboxSender } from "./outbox_sender.js";
import { type Answer, buildUserFrames, checkText, Requests } from "./request_queue.js";

/** Maximum wait for a response. */
export const REQUEST_TIMEOUT_S = 10;
const RETRY_S = 1;
const SYNC_PAGE = 200;

export type { QueuedEvent } from "./events.js";
export type { Answer } from "./request_queue.js";

/** The state of one device of a user. */
export class ClientState {
  device: string;
  readonly bounds: Bounds;
  user = "";
  cursor: Cursor | null = null;
  limits: Partial<frames.Limits> = {};
  readonly chats = new Map<string, ChatState>();
  readonly outbox: Outbox;
  isOnline = false;
  readonly catchUp: CatchUp;
  readonly companionResponses: CompanionResponses;
  /** Chats that changed since the owner of this set last cleared it. */
  readonly touched = new Set<string>();
  readonly #requests: Requests;
  readonly #operations: OutboxSender;
  #connection = 0;
  #unstoredInHello: Record<string, number> = {}; // acked operations named in the last `hello`
  readonly #startedByWelcome = new Map<string, number>(); // chat → first seq
  readonly #watched = new Set<string>();
  #isResetPending = false; // if true, acked operations must be requeued first
  #isPaused = false;
  #isBehind = false; // events were missed
  #isSyncing = false;
  #syncNotBeforeS = 0;
  #frames: Fields[] = [];
  #events: QueuedEvent[] = [];
  #before: Cursor | null = null; // the cursor before the event being applied
  readonly #answers: Answer[] = [];

  constructor(device: string, bounds: Partial<Bounds> = {}) {
    this.device = device;
    this.bounds = { ...DEFAULT_BOUNDS, ...bounds };
    this.outbox = new Outbox(this.bounds.outboxMax);
    this.#requests = new Requests(this.bounds.requestsMax);
    const [send, emit] = [this.#sendOnConnection.bind(this), this.#emit.bind(this)];
    const touch = (chat: ChatState): void => void this.touched.add(chat.id);
    this.catchUp = new CatchUp(send, emit, touch, this.bounds.fillMax);
    this.companionResponses = new CompanionResponses(send, emit);
    this.#operations = new OutboxSender(this.outbox, this.#requests, this.chats, emit);
  }

  // outputs

  /** Remove and return the frames to send on the current connection, in order. */
  popFrames(): Fields[] {
    const popped = this.#frames;
    this.#frames = [];
    return popped;
  }

  /** Remove and return the events to deliver, each with its cursor. */
  popQueuedEvents(): QueuedEvent[] {
    const popped = this.#events;
    this.#events = [];
    return popped;
  }

  /** Remove and return the responses, each with its request number. */
  popAnswers(): Answer[] {
    return this.#answers.splice(0);
  }

  /** Return the time at which `tick` must be called if there is no other input. */
  getNextTick(nowS: number): number | null {
    const times = this.#requests.listDueTimes();
    if (this.isOnline) {
      times.push(...this.outbox.listDueTimes());
      if (!this.#isPaused) times.push(...this.catchUp.listDueTimes(), this.#syncNotBeforeS);
    }
    const later = times.filter((time) => time > nowS);
    return later.length > 0 ? later.reduce((a, b) => Math.min(a, b)) : null;
  }

  // connection

  /** Return the first frame of a connection. */
  buildHello(token: string, state: "fg" | "bg" = "fg"): Fields {
    const { device } = this;
    const fields: Fields = { type: "hello", v: frames.PROTOCOL_VERSION, token, device, state };
    if (this.cursor === null) return fields;
    fields["cursor"] = { ...this.cursor };
    // An unverified log has no known position in the current epoch. Chats beyond the limit start at
    // their newest entry; the rest is read from history.
    const known = [...this.chats.values()].filter((chat) => chat.isLarge && !chat.log.isUnverified);
    const large = known.slice(0, frames.LARGE_MAX).map((chat) => [chat.id, chat.log.shown ?? 0]);
    if (large.length > 0) fields["large"] = Object.fromEntries(large);
    this.#unstoredInHello = this.outbox.getUnstored(frames.UNSTORED_MAX);
    if (Object.keys(this.#unstoredInHello).length > 0) fields["unstored"] = this.#unstoredInHello;
    return fields;
  }

  /** Handle the response to `hello`; return the connection number to pass to `handleFrame`. */
  handleWelcome(frame: Fields, nowS: number): number {
    const welcome = frame as unknown as frames.Welcome;
    this.user = welcome.user;
    this.limits = welcome.limits ?? {};
    this.isOnline = true;
    this.#connection += 1;
    this.#isBehind = false;
    const isFresh = this.cursor === null;
    if (this.cursor === null) {
      this.cursor = { epoch: welcome.epoch, seq: welcome.seq };
      for (const chat of this.chats.values()) this.#markUnverified(chat); // from an outdated store
    }
    this.#isResetPending = this.cursor.epoch !== welcome.epoch;
    if (!this.#isResetPending) this.outbox.postponeProbes(Object.keys(this.#unstoredInHello), nowS);
    this.#unstoredInHello = {};
    this.#emit([{ type: "connected", user: this.user }]);
    for (const frame of buildUserFrames("watch", [...this.#watched])) this.notify(frame);
    this.#applyLargeChats(welcome.large ?? [], isFresh);
    this.companionResponses.handleReconnect(nowS);
    this.tick(nowS);
    return this.#connection;
  }

  /** Handle the end of the connection. */
  handleDisconnect(nowS: number): void {
    this.isOnline = false;
    this.#isSyncing = false;
    this.#frames = [];
    this.#operations.handleDisconnect();
    this.#requests.handleDisconnect();
    this.catchUp.handleDisconnect();
    this.tick(nowS);
  }

  /** Handle a frame of a connection; frames of an earlier connection are ignored. */
  handleFrame(connection: number, fields: Fields, nowS: number): void {
    if (connection !== this.#connection || !this.isOnline) return;
    const frame = fields as unknown as frames.ServerFrame;
    switch (frame.type) {
      case "event":
        this.#handleEvent(frame, nowS);
        break;
      case "ack":
        this.#operations.handleAck(frame, nowS);
        break;
      case "error":
        if (!this.#operations.handleError(frame, nowS)) this.#requests.handleAnswer(fields, nowS);
        break;
      case "stored":
        this.outbox.recordStored(frame.chat, frame.upto, nowS);
        this.#emit([{ type: "storedUpto", chat: frame.chat, seq: frame.upto }]);
        break;
      case "signal":
        if (frame.kind === "ai.delta") this.companionResponses.handleSignal(frame, nowS);
        else this.#emit([parseSignal(fields)]);
        break;
      case "too_long":
      case "reset":
        this.#applySnapshot(frame);
        break;
      case "ok":
      case "page":
      case "turn":
        this.#requests.handleAnswer(fields, nowS);
        break;
      default: // from a newer server
    }
    this.tick(nowS);
  }

  /** Send the requests and retries that are due, and fail expired requests. */
  tick(nowS: number): void {
    this.#requests.expire(nowS);
    if (!this.isOnline) return;
    if (!this.#isResetPending) {
      this.#frames.push(...this.#operations.nextFrames(nowS, this.limits));
    }
    if (!this.#isPaused) {
      this.#syncIfBehind(nowS);
      this.catchUp.requestPages(nowS);
    }
    this.#frames.push(...this.#requests.nextFrames(nowS));
  }

  // application

  /**
   * Queue an operation; `acked` or `refused` reports its outcome.
   *
   * @throws {@link ChatError} `bad_request`: a text contains a lone surrogate; `conflict`: the
   * `ref` belongs to another operation; `overloaded`: the outbox is full.
   */
  enqueue(entry: OutboxEntry, nowS: number): void {
    checkText(entry.fields);
    this.#operations.put(entry);
    this.touched.add(entry.chat);
    this.tick(nowS);
  }

  /**
   * Send a request and return its number; `popAnswers` returns the response with this number.
   *
   * @throws {@link ChatError} `bad_request` or `overloaded`: too many requests are pending.
   */
  sendRequest(fields: Fields, nowS: number, deadlineS: number): number {
    checkText(fields);
    const onEnd = (answer: Fields | ChatError): void => {
      this.#answers.push([request.id, answer]);
    };
    const callbacks = { onAnswer: onEnd, onError: onEnd };
    const request = this.#requests.add({ fields, ...callbacks, deadlineS, isRetried: true });
    this.tick(nowS);
    return request.id;
  }

  /** Drop a request whose caller no longer waits. */
  cancelRequest(number: number): void {
    this.#requests.remove(number);
  }

  /** Send a frame that has no response; drop it if there is no connection. */
  notify(fields: Fields): void {
    checkText(fields);
    if (this.isOnline) this.#frames.push(fields);
  }

  /**
   * Subscribe to the presence of users, on this connection and later ones.
   *
   * @throws {@link ChatError} `overloaded`: too many subscriptions.
   */
  watch(users: string[]): void {
    const { watchedMax } = this.bounds;
    if (new Set([...this.#watched, ...users]).size > watchedMax) {
      throw new ChatError("overloaded", `at most ${watchedMax} presence subscriptions are allowed`);
    }
    for (const user of users) this.#watched.add(user);
    for (const frame of buildUserFrames("watch", users)) this.notify(frame);
  }

  /** Unsubscribe from the presence of users. */
  unwatch(users: string[]): void {
    for (const user of users) this.#watched.delete(user);
    for (const frame of buildUserFrames("unwatch", users)) this.notify(frame);
  }

  /** Deliver events that a previous process of this device left unconsumed. */
  redeliver = this.#emit.bind(this);

  /** Pause or resume events. While paused, events stay on the server; responses still arrive. */
  pause(nowS: number, isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.tick(nowS);
  }

  /** Apply a page of the chat list. */
  applyChatList(page: { chats: frames.ChatSummary[] }): void {
    for (const summary of page.chats) {
      const chat = this.getOrCreateChat(summary.chat);
      chat.isLeft = false;
      this.#emit(chat.applySummary(summary));
    }
  }

  /** Apply a page of history that the application requested. */
  applyHistory(page: frames.HistoryPage, isNewest: boolean, before: number | null = null): void {
    const chat = this.getOrCreateChat(page.chat);
    this.#emit(chat.applyPage(page.messages, isNewest, before));
    this.catchUp.schedule(chat);
  }

  /** Remove a chat that the user can no longer read. */
  removeChat(name: string): void {
    const chat = this.chats.get(name);
    if (chat === undefined) return;
    this.chats.delete(name);
    this.catchUp.cancel(chat);
  }

  /** Apply chat info from a response. */
  applyInfo(info: frames.ChatInfo): void {
    this.getOrCreateChat(info.chat).applyInfo(info);
  }

  /** Return or create a chat; if there are too many, evict the least recently active one. */
  getOrCreateChat(name: string): ChatState {
    let chat = this.chats.get(name);
    if (chat === undefined) {
      const [oldest] = this.chats.values();
      if (oldest !== undefined && this.chats.size >= this.bounds.chatsMax) {
        this.removeChat(oldest.id);
      }
      chat = new ChatState(name, this.user, this.bounds);
    }
    this.chats.delete(name);
    this.chats.set(name, chat); // at the end: most recently active
    this.touched.add(name);
    return chat;
  }

  // events

  #handleEvent(frame: frames.Event, nowS: number): void {
    if (frame.seq === 0) {
      this.#handleLargeEvent(frame, nowS);
      return;
    }
    const cursor = this.#getCursor();
    const { epoch, seq } = frame;
    if (epoch === cursor.epoch && seq <= cursor.seq) return;
    if (this.#isPaused || epoch !== cursor.epoch || seq !== cursor.seq + 1) {
      this.#isBehind = true;
      return;
    }
    this.#before = cursor;
    this.cursor = { epoch, seq };
    this.#applyEvent(frame, nowS);
    this.#before = null;
  }

  #getCursor(): Cursor {
    if (this.cursor === null) throw new Error("the client was never connected");
    return this.cursor;
  }

  #applyEvent(frame: frames.Event, nowS: number): void {
    const chat = this.getOrCreateChat(frame.chat);
    if (frame.message !== undefined) {
      this.#applyEntry(chat, frame.message, nowS);
    } else if (frame.read !== undefined) {
      this.#emit(chat.applyMarks(frame.read));
    } else if (frame.hidden !== undefined) {
      this.#emit(chat.hide(frame.hidden));
    } else if (frame.info !== undefined) {
      chat.applyInfo(frame.info);
      this.#applyTransition(chat, frame.info);
      this.#emit([{ type: "chatChanged", chat: chat.id, change: null }]);
    }
  }

  #applyEntry(chat: ChatState, entry: frames.Message, nowS: number): void {
    chat.isLeft = entry.kind === "member" && entry.user === this.user && !entry.role;
    if (chat.isLeft) {
      chat.isLarge = false;
      this.outbox.scheduleProbes(chat.id, nowS);
    }
    this.#emit(chat.applyEntry(entry));
    this.catchUp.schedule(chat);
    const operation = entry.sender === this.user ? this.outbox.find(entry.ref) : undefined;
    if (operation === undefined || operation.chat !== chat.id) return;
    if (!isStoredRequired(operation)) {
      this.#operations.recordCommit(operation.ref, entry, nowS, false, "hot");
    }
  }

  #syncIfBehind(nowS: number): void {
    if (!this.#isBehind || this.#isSyncing || this.#syncNotBeforeS > nowS) return;
    const startCursor = this.#getCursor();
    this.#isSyncing = true;
    this.#isBehind = false; // set again by any later event that cannot be applied
    this.#sendOnConnection(
      { type: "sync", cursor: { ...startCursor }, limit: SYNC_PAGE },
      (frame, when) => {
        const page = frame as unknown as frames.EventPage;
        this.#isSyncing = false;
        for (const event of page.events) this.#handleEvent(event, when);
        this.#isBehind = this.#isBehind || (page.more ?? false);
        const cursor = this.#getCursor();
        if (cursor.epoch === startCursor.epoch && cursor.seq === startCursor.seq) {
          this.#syncNotBeforeS = when + RETRY_S;
        }
      },
      (error, when) => {
        this.#isSyncing = false;
        this.#isBehind = true;
        this.#syncNotBeforeS = when + Math.max(RETRY_S, (error.retryAfterMs ?? 0) / 1000);
      },
      nowS,
    );
  }

  /** Replace the cursor and the chat list with a snapshot. */
  #applySnapshot(frame: frames.TooLong | frames.Reset): void {
    const { epoch, seq } = frame.cursor;
    const isNew = frame.type === "reset" || (this.cursor !== null && epoch !== this.cursor.epoch);
    this.cursor = { epoch, seq };
    this.#isBehind = false;
    this.#isResetPending = false;
    if (frame.id != null) {
      this.#requests.remove(frame.id);
      this.#isSyncing = false;
    }
    const listed = new Map(frame.chats.map((summary) => [summary.chat, summary.top ?? 0]));
    for (const [name, seq] of this.#startedByWelcome) this.chats.get(name)?.log.undoStart(seq);
    this.#startedByWelcome.clear();
    if (isNew) this.outbox.requeueAcked();
    for (const chat of this.chats.values()) {
      if (isNew) this.#markUnverified(chat);
      else if (chat.log.shown === null) chat.log.markUnverified(); // nothing was delivered
    }
    this.applyChatList(frame);
    const incomplete = [...this.chats.values()].filter((c) => c.needsHistory).map(({ id }) => id);
    for (const head of frame.large ?? []) {
      const chat = this.getOrCreateChat(head.chat);
      chat.isLarge = true;
      if (!chat.log.isUnverified) chat.log.startAfter(head.seq);
    }
    this.#emit([{ type: "restarted", isNewEpoch: isNew, chats: incomplete }]);
    for (const chat of [...this.chats.values()]) {
      if (chat.log.shown !== null) chat.log.recordPushed(listed.get(chat.id) ?? 0);
      const isForced = !listed.has(chat.id);
      if (isNew) this.catchUp.restart(chat, isForced);
      else if (chat.log.shown !== null) this.catchUp.schedule(chat, isForced);
    }
  }

  #markUnverified(chat: ChatState): void {
    chat.markUnverified();
    this.touched.add(chat.id);
  }

  // large chats: they have no inbox events; the seq in the chat is the cursor

  /** Apply `welcome.large`: the large chats, each with the seq after which events follow. */
  #applyLargeChats(heads: frames.LargeChat[], isFresh: boolean): void {
    this.#startedByWelcome.clear();
    for (const head of heads) {
      const chat = this.getOrCreateChat(head.chat);
      chat.isLarge = true;
      if (this.#isResetPending) continue; // another epoch: the snapshot has the positions
      if (chat.log.shown === null && !isFresh) this.#startedByWelcome.set(chat.id, head.seq);
      chat.log.startAfter(head.seq);
      chat.log.recordPushed(head.seq);
      this.catchUp.schedule(chat);
    }
  }

  /** Apply the transition to a large chat, after seq `since`, or back to a small one. */
  #applyTransition(chat: ChatState, info: frames.ChatInfo): void {
    if (info.since == null) return;
    chat.isLarge = info.large ?? false;
    if (chat.isLarge && !chat.log.isUnverified) chat.log.startAfter(info.since);
    this.catchUp.schedule(chat); // entries may have been pushed before
  }

  #handleLargeEvent(frame: frames.Event, nowS: number): void {
    const chat = this.getOrCreateChat(frame.chat);
    // If the first entries are in inbox events that were missed, delivery must not start here.
    const isMissingStart = chat.log.shown === null && (this.#isBehind || this.#isSyncing);
    if (this.#isPaused || isMissingStart) chat.log.recordPushed(frame.cs ?? 0);
    else this.#applyEvent(frame, nowS);
    this.catchUp.schedule(chat);
  }

  /** Send a request that is valid on the current connection only. */
  #sendOnConnection(
    fields: Fields,
    onAnswer: (frame: Fields, nowS: number) => void,
    onError: (error: ChatError, nowS: number) => void,
    nowS: number,
  ): void {
    const deadlineS = nowS + REQUEST_TIMEOUT_S;
    this.#requests.add({ fields, onAnswer, onError, deadlineS, isRetried: false });
  }

  #emit(events: Iterable<ChatEvent>): void {
    const before = this.#before ?? this.cursor;
    for (const event of events) {
      const chat = findChangedChat(event);
      if (chat !== null) this.touched.add(chat);
      this.#events.push({ event, before });
    }
  }
}
