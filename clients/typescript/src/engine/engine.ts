// I/O of a client: the socket, the timers and the store.
//
// `ClientState` makes all decisions. An operation is saved before it is sent. The position is saved
// soon after the application has consumed the events.

import type {
  ChatInfo,
  ChatsPage,
  HistoryPage,
  Ok,
  ResponseText,
  Welcome,
} from "../generated/frames.js";
import { ClientState, type QueuedEvent, REQUEST_TIMEOUT_S } from "../state/client_state.js";
import { ChatError } from "../state/errors.js";
import type { Acked, ChatEvent } from "../state/events.js";
import type { Entry, Fields } from "../state/model.js";
import { createOutboxEntry } from "../state/outbox.js";
import { ReconnectPolicy } from "../state/reconnect_policy.js";
import { restore, SAVED_VERSION } from "../state/saved_state.js";
import { getRenewalDelayS } from "../state/token_renewal.js";
import type { Backend, ChatDescription, Listener, Operation, PendingOperation } from "./backend.js";
import type { EventQueue } from "./event_queue.js";
import type { ClientOptions } from "./options.js";
import { type CloseReason, openSocket, type Socket } from "./socket.js";
import { StateSaver } from "./state_saver.js";
import { StateView } from "./state_view.js";

const WELCOME_TIMEOUT_MS = 10_000;
const RENEWAL_RETRY_S = 5;
const SILENCE_MS = 45_000; // without frames, before the connection is probed
const CHECK_INTERVAL_MS = 10_000;
const PROBE_TIMEOUT_MS = 5_000; // after the network or the user has returned

interface PendingRequest {
  fields: Fields;
  resolve: (answer: Fields) => void;
  reject: (error: Error) => void;
}

/** One device: its state, its connection and its store. */
export class Engine implements Backend {
  readonly #options: ClientOptions;
  readonly #listener: Listener;
  readonly #queue: EventQueue;
  readonly #state: ClientState;
  readonly #view: StateView;
  readonly #saver: StateSaver;
  readonly #policy = new ReconnectPolicy((low, high) => low + Math.random() * (high - low));
  readonly #pendingRequests = new Map<number, PendingRequest>();
  #drafts: Record<string, string> = {};
  #socket: Socket | null = null;
  #outgoing: Fields[] = [];
  #isWriting = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failure: Error | null = null;
  #isStopped = false;
  #lastCloseReason = "";
  #wakeUp: () => void = () => {};
  #activity: "fg" | "bg" = "fg";
  #isForeground = false; // as the application reported
  #welcomed!: { promise: Promise<void>; resolve: () => void; reject: (error: Error) => void };
  #wasWelcomed = false;
  #lastFrameAtMs = 0;
  #framesReceived = 0;

  constructor(options: ClientOptions, device: string, listener: Listener, queue: EventQueue) {
    this.#options = options;
    this.#listener = listener;
    this.#queue = queue;
    this.#state = new ClientState(options.device ?? device, options.bounds);
    this.#view = new StateView(this.#state);
    const onError = (error: Error): void => this.#end(error);
    this.#saver = new StateSaver(options, this.#state, queue, onError);
    let [resolve, reject]: [() => void, (error: Error) => void] = [() => {}, () => {}];
    const promise = new Promise<void>((resolvePromise, rejectPromise) => {
      [resolve, reject] = [resolvePromise, rejectPromise];
    });
    promise.catch(() => {});
    this.#welcomed = { promise, resolve, reject };
  }

  // lifecycle

  /** Load the store and connect in the background. */
  async start(): Promise<void> {
    const stored = await this.#options.store?.load();
    if (stored !== undefined) {
      if (stored.place !== null && stored.place.v !== SAVED_VERSION) {
        const text = "the store was written by another version of the SDK; delete it";
        throw new ChatError("conflict", text);
      }
      restore(this.#state, stored.place, stored.chats, stored.outbox);
      this.#drafts = stored.drafts;
      this.#saver.setStoredChats(stored.chats.map(({ chat }) => chat));
      if (this.#options.device !== undefined) this.#state.device = this.#options.device;
    }
    this.#flush();
    globalThis.addEventListener?.("online", this.#resume);
    globalThis.addEventListener?.("pagehide", this.#onPageHide);
    void this.#runConnection();
  }

  /** Wait for the first connection, at most `timeoutMs`. */
  async waitForWelcome(timeoutMs: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<never>((_, reject) => {
      const fail = (): void => {
        const reason = this.#lastCloseReason || "no response";
        const text = `cannot connect to a gateway at ${this.#options.url}: ${reason}`;
        reject(new ChatError("unavailable", text));
      };
      timer = setTimeout(fail, timeoutMs);
    });
    try {
      await Promise.race([this.#welcomed.promise, timeout]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Close the connection and save the state. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    globalThis.removeEventListener?.("online", this.#resume);
    globalThis.removeEventListener?.("pagehide", this.#onPageHide);
    clearTimeout(this.#timer);
    this.#wakeUp();
    this.#socket?.close();
    this.#socket?.drop("the client is closed");
    await this.#saver.close();
    this.#fail(new ChatError("unavailable", "the client is closed"));
  }

  /** The network or the user has returned: connect now, or check that the gateway responds. */
  #resume = (): void => {
    this.#wakeUp();
    const socket = this.#socket;
    if (socket === null || !this.#state.isOnline || this.#state.cursor === null) return;
    const received = this.#framesReceived;
    this.#probe(socket);
    setTimeout(() => {
      if (this.#framesReceived === received) socket.drop("the gateway does not respond");
    }, PROBE_TIMEOUT_MS);
  };

  /** The page is being closed: save at once. */
  #onPageHide = (): void => void this.#saver.save().catch(() => {});

  #end(error: Error): void {
    if (this.#failure !== null) return;
    this.#fail(error);
    this.#listener.onEnd(error);
    void this.stop().catch(() => {});
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#pendingRequests.values()) reject(this.#failure);
    this.#pendingRequests.clear();
    this.#welcomed.reject(this.#failure);
  }

  // connection

  async #runConnection(): Promise<void> {
    try {
      while (!this.#isStopped) {
        const startedS = now();
        const closed = await this.#connectOnce();
        if (this.#isStopped) return;
        const endedS = now();
        this.#policy.recordDuration(endedS - startedS);
        const { device } = this.#state;
        this.#policy.handleClose(closed.code, closed.reason, endedS, this.#wasWelcomed, device);
        this.#lastCloseReason = closed.reason;
        const waitS = this.#policy.nextS(closed.retryAfterMs, this.#isForeground);
        this.#deliverNew([{ type: "disconnected", reason: closed.reason, retryInS: waitS }]);
        await this.#sleep(waitS * 1000);
      }
    } catch (error) {
      this.#end(error as Error);
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #connectOnce(): Promise<CloseReason> {
    let token: string;
    let socket: Socket;
    try {
      token = await this.#options.getToken();
      if (this.#isStopped) return { code: 0, reason: "the client is closed", retryAfterMs: null };
      socket = await openSocket(this.#options.url, this.#options.WebSocket);
    } catch (error) {
      if (error instanceof ChatError && !error.isTemporary) throw error;
      const advice = error instanceof ChatError ? error.retryAfterMs : null;
      return { code: 0, reason: (error as Error).message, retryAfterMs: advice };
    }
    if (this.#isStopped) socket.drop("the client is closed");
    this.#socket = socket;
    const timer = setTimeout(() => {
      socket.drop("the gateway does not respond to hello");
    }, WELCOME_TIMEOUT_MS);
    const session: { number: number | null } = { number: null };
    let renewalTimer: ReturnType<typeof setTimeout> | undefined;
    socket.onFrame = (frame) => {
      this.#lastFrameAtMs = Date.now();
      this.#framesReceived += 1;
      try {
        if (session.number !== null) {
          this.#state.handleFrame(session.number, frame, now());
          this.#flush();
        } else if (frame.type === "welcome") {
          clearTimeout(timer);
          session.number = this.#handleWelcome(frame as unknown as Welcome);
          renewalTimer = this.#scheduleRenewal(getRenewalDelayS(token));
        }
      } catch (error) {
        if (error instanceof ChatError) this.#end(error);
        else socket.drop(`unexpected frame: ${frame.type}`);
      }
    };
    socket.send(this.#state.buildHello(token, this.#activity));
    const checkTimer = setInterval(() => this.#checkSilence(socket), CHECK_INTERVAL_MS);
    const closed = await socket.closed;
    clearTimeout(timer);
    clearTimeout(renewalTimer);
    clearInterval(checkTimer);
    socket.onFrame = () => {};
    this.#socket = null;
    this.#outgoing = [];
    if (session.number !== null) {
      this.#state.handleDisconnect(now());
      this.#flush();
    }
    return closed;
  }

  #handleWelcome(welcome: Welcome): number {
    const storedUser = this.#state.user;
    if (storedUser !== "" && welcome.user !== storedUser) {
      const text = `the store belongs to ${storedUser}, but the token is for ${welcome.user}`;
      throw new ChatError("conflict", `${text}; use the same user for both`);
    }
    this.#policy.recordWelcome();
    const number = this.#state.handleWelcome(welcome as unknown as Fields, now());
    this.#wasWelcomed = true;
    this.#flush();
    // Resolve `connect` once the position is saved: all later events follow it.
    void this.#saver.save().then(this.#welcomed.resolve);
    return number;
  }

  /** Probe the connection after a long silence: browsers do not report pings. */
  #checkSilence(socket: Socket): void {
    const silenceMs = Date.now() - this.#lastFrameAtMs;
    if (silenceMs > SILENCE_MS + 2 * CHECK_INTERVAL_MS) socket.drop("the gateway does not respond");
    else if (silenceMs > SILENCE_MS) this.#probe(socket);
  }

  #probe(socket: Socket): void {
    const { cursor } = this.#state;
    if (cursor !== null) socket.send({ type: "sync", id: 0, cursor, limit: 1 });
  }

  /** Renew the session before its token expires. */
  #scheduleRenewal(waitS: number | null): ReturnType<typeof setTimeout> | undefined {
    if (waitS === null) return undefined;
    const socket = this.#socket;
    const renew = async (): Promise<void> => {
      let delayS: number | null = RENEWAL_RETRY_S;
      try {
        const token = await this.#options.getToken();
        await this.request({ type: "auth", token }, REQUEST_TIMEOUT_S);
        delayS = getRenewalDelayS(token);
      } catch {
        // Retried below. If the token expires first, the gateway closes the session.
      }
      if (this.#socket === socket && !this.#isStopped) this.#scheduleRenewal(delayS);
    };
    const delayMs = Math.min(waitS * 1000, 2 ** 31 - 1);
    return setTimeout(() => void (this.#socket === socket && renew()), delayMs);
  }

  // outputs of the state

  /** Process the outputs of the last input: frames, responses, events and the timer. */
  #flush(): void {
    const frames = this.#state.popFrames();
    if (frames.length > 0 && this.#state.isOnline) {
      this.#outgoing.push(...frames);
      void this.#write();
    }
    for (const [number, answer] of this.#state.popAnswers()) {
      const pending = this.#pendingRequests.get(number);
      this.#pendingRequests.delete(number);
      if (pending === undefined) continue;
      if (answer instanceof Error) pending.reject(answer);
      else {
        this.#applyAnswer(pending.fields, answer);
        pending.resolve(answer);
      }
    }
    this.#deliver(this.#state.popQueuedEvents());
    this.#schedule();
  }

  #applyAnswer(request: Fields, answer: Fields): void {
    const before = typeof request["before"] === "number" ? request["before"] : null;
    if (request.type === "history") {
      const isNewest = before === null && request["after"] === undefined;
      this.#state.applyHistory(answer as unknown as HistoryPage, isNewest, before);
    } else if (request.type === "chats") {
      this.#state.applyChatList(answer as unknown as ChatsPage);
    } else if (request.type === "join_turn") {
      this.#state.companionResponses.applyText(answer as unknown as ResponseText);
    } else if (answer.type === "ok" && request.type !== "leave") {
      const { chat } = answer as unknown as Ok;
      if (chat != null) this.#state.applyInfo(chat);
    }
  }

  #deliverNew(events: ChatEvent[]): void {
    this.#deliver(events.map((event) => ({ event, before: this.#state.cursor })));
  }

  #deliver(events: QueuedEvent[]): void {
    const touched = this.#view.popTouched();
    this.#saver.markChanged(touched);
    if (events.length > 0) this.#listener.onEvents(events);
    if (events.length > 0 || touched.size > 0) this.#listener.onChange(touched);
    if (this.#queue.isFull) this.#state.pause(now(), true);
  }

  /** Resume events if the queue is empty, and save the new position. */
  onConsumed(): void {
    if (this.#isStopped) return;
    if (this.#queue.size === 0) {
      this.#state.pause(now(), false);
      this.#flush();
    }
    this.#saver.markChanged([]);
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    const nowS = now();
    const tickS = this.#state.getNextTick(nowS);
    if (tickS === null || this.#isStopped) return;
    this.#timer = setTimeout(
      () => {
        this.#state.tick(now());
        this.#flush();
      },
      Math.ceil((tickS - nowS) * 1000),
    );
    if (typeof this.#timer === "object" && !this.#state.isOnline) this.#timer.unref?.();
  }

  async #write(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      while (this.#outgoing.length > 0) {
        const socket = this.#socket;
        if (this.#saver.hasNewOperations) await this.#saver.save(); // before they are sent
        const frames = this.#outgoing;
        this.#outgoing = [];
        if (socket === this.#socket) for (const frame of frames) socket?.send(frame);
      }
    } catch (error) {
      this.#end(error as Error);
    } finally {
      this.#isWriting = false;
    }
  }

  // calls

  async submit({ ref, chat, fields }: Operation): Promise<Acked | null> {
    this.#checkOpen();
    const existing = this.#state.outbox.find(ref);
    this.#saver.hasNewOperations = true;
    this.#state.enqueue(createOutboxEntry(ref, chat, fields), now());
    this.#flush();
    if (!this.#state.isOnline) await this.#saver.save();
    if (existing?.stage !== "acked") return null;
    const { seq, ts, mid } = existing;
    return { type: "acked", ref, chat, seq, ts, mid, dup: true, durability: "hot" };
  }

  request(fields: Fields, deadlineS: number): Promise<Fields> {
    return new Promise((resolve, reject) => {
      this.#checkOpen();
      const nowS = now();
      const number = this.#state.sendRequest(fields, nowS, nowS + deadlineS);
      this.#pendingRequests.set(number, { fields, resolve, reject });
      this.#flush();
    });
  }

  notify(fields: Fields): void {
    this.#checkOpen();
    if (fields.type === "state") {
      this.#activity = fields["state"] === "bg" ? "bg" : "fg";
      this.#isForeground = this.#activity === "fg";
      if (this.#isForeground) this.#resume();
    }
    this.#state.notify(fields);
    this.#flush();
  }

  setWatched(users: string[], isWatched: boolean): void {
    this.#checkOpen();
    if (isWatched) this.#state.watch(users);
    else this.#state.unwatch(users);
    this.#flush();
  }

  clearChat(chat: string, upto: number): void {
    this.#state.chats.get(chat)?.clear(upto);
    this.#state.touched.add(chat);
    this.#flush();
  }

  applyInfo(info: ChatInfo): void {
    this.#state.applyInfo(info);
    this.#state.touched.add(info.chat);
    this.#flush();
  }

  setDraft(chat: string, text: string): void {
    this.#checkOpen();
    if (text === "") delete this.#drafts[chat];
    else this.#drafts[chat] = text;
    this.#saver.setDraft(chat, text);
    this.#listener.onChange(new Set([chat]));
  }

  openChat(): void {}

  #checkOpen(): void {
    if (this.#failure !== null) throw this.#failure;
  }

  // view

  get user(): string {
    return this.#state.user;
  }

  get device(): string {
    return this.#state.device;
  }

  get isOnline(): boolean {
    return this.#state.isOnline;
  }

  listChats(): string[] {
    return this.#view.listChats();
  }

  describe(chat: string): ChatDescription | null {
    return this.#view.describe(chat);
  }

  messages(chat: string): readonly Entry[] {
    return this.#view.messages(chat);
  }

  pending(chat: string): PendingOperation[] {
    return this.#view.pending(chat);
  }

  draft(chat: string): string {
    return this.#drafts[chat] ?? "";
  }
}

function now(): number {
  return performance.now() / 1000;
}
