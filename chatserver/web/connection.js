// A reconnecting WebSocket connection.
//
//   idle → connecting → open → waiting → connecting …        stopped: until the user acts
//
// Owns the socket, the request ids and the timers; independent of chats. Reports by `onLink(link)`
// (status), `onFrame(frame)` (frames that are not replies) and the promises of `request`.
//
// Browsers do not expose WebSocket pings, so a dead connection is detected by a probe: after two
// heartbeats without a frame, after sleep, and when the network changes.

import { classifyClose, reconnectDelay } from "./backoff.js";

const SUBPROTOCOL = "chat.v1";
const OPEN_TIMEOUT_MS = 10_000;
const ANSWER_TIMEOUT_MS = 10_000;
const WATCH_MS = 5000;
const SLEPT_MS = 3 * WATCH_MS; // a timer this late means that the machine slept
const RECENT_MS = 2000; // no probe if a frame arrived within this time
const REPLACED_MS = 60_000;
const STEADY_MS = 5000; // a connection open this long resets the backoff
const NORMAL_CLOSE = 1000;

/** A failed request, with the fields of an `error` frame. */
export class RequestFailed extends Error {
  constructor({ code, message, temporary = false, retry_after_ms: retryAfterMs = 0 }) {
    super(message);
    this.code = code;
    this.isTemporary = temporary;
    this.retryAfterMs = retryAfterMs;
  }
}

const LOST = { code: "disconnected", message: "Connection lost.", temporary: true };
const SILENT = { code: "timeout", message: "The server did not respond in time.", temporary: true };

export class Connection {
  #socket = null;
  #requests = new Map(); // id → {resolve, reject, timer}
  #nextId = 1;
  #timer = null; // of the state: opening, or waiting
  #watch = null;
  #attempt = 0;
  #isRefreshing = false; // an expired token is renewed once; a second rejection stops
  #bye = null;
  #receivedAt = 0;
  #openedAt = 0;
  #replacedAt = -Infinity;
  #tickedAt = 0;
  #heartbeatMs = 25_000;
  #isChecking = false;
  link = { status: "idle" };

  /**
   * `hello()` returns the first frame, or throws; `refresh()` renews an expired token and returns
   * whether it succeeded; `probe()` returns a cheap request.
   */
  constructor({ url, hello, refresh, probe, onFrame, onLink, env }) {
    this.url = url;
    this.hello = hello;
    this.refresh = refresh;
    this.probe = probe;
    this.onFrame = onFrame;
    this.onLink = onLink;
    this.env = env; // {openSocket, setTimeout, clearTimeout, now, random}
  }

  /** Open, or open at once instead of waiting. */
  start() {
    if (this.link.status === "connecting" || this.link.status === "open") return;
    if (this.link.status === "stopped") this.#attempt = 0;
    this.#connect();
  }

  /** Close for good. */
  stop() {
    this.#dropSocket();
    this.#setLink({ status: "idle" });
  }

  /** The connection may be dead: probe it, or reconnect at once. */
  suspect() {
    if (this.link.status === "waiting") this.start();
    else if (this.env.now() - this.#receivedAt > RECENT_MS) this.#check(3000);
  }

  get isOpen() {
    return this.link.status === "open";
  }

  /** Send a frame that has no reply; return whether it was sent. */
  notify(frame) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  /**
   * Send a request and wait for its reply.
   *
   * Rejects with `RequestFailed`: the server's error, `disconnected` or `timeout`. After the last
   * two, the outcome is unknown.
   */
  request(frame, timeoutMs = ANSWER_TIMEOUT_MS) {
    if (!this.isOpen) return Promise.reject(new RequestFailed(LOST));
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve, reject) => {
      const timer = this.env.setTimeout(() => {
        this.#requests.delete(id);
        reject(new RequestFailed(SILENT));
        this.#check(ANSWER_TIMEOUT_MS / 2);
      }, timeoutMs);
      this.#requests.set(id, { resolve, reject, timer });
      this.#socket.send(JSON.stringify({ ...frame, id }));
    });
  }

  // ── opening ───────────────────────────────────────────────────────────────────────────────────

  async #connect() {
    this.#dropSocket();
    this.#setLink({ status: "connecting", attempt: this.#attempt, reason: this.link.reason ?? null });
    const link = this.link;
    let hello;
    try {
      hello = await this.hello();
    } catch (error) {
      if (this.link === link) this.#lost(error.code ?? 1006, error.message);
      return;
    }
    if (this.link === link) this.#open(hello);
  }

  #open(hello) {
    const socket = this.env.openSocket(this.url, [SUBPROTOCOL]);
    this.#socket = socket;
    this.#bye = null;
    socket.onopen = () => socket.send(JSON.stringify(hello));
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code }) => this.#lost(code, null);
    this.#timer = this.env.setTimeout(() => this.#lost(1006, null), OPEN_TIMEOUT_MS);
  }

  #opened(welcome) {
    this.env.clearTimeout(this.#timer);
    this.#heartbeatMs = welcome.heartbeat_ms || this.#heartbeatMs;
    this.#openedAt = this.env.now();
    this.#tickedAt = this.#openedAt;
    this.#isRefreshing = false;
    this.link = { status: "open" };
    this.onFrame(welcome);
    this.#setLink(this.link);
    this.#watch = this.env.setTimeout(() => this.#tick(), WATCH_MS);
  }

  // ── frames ────────────────────────────────────────────────────────────────────────────────────

  #receive(data) {
    this.#receivedAt = this.env.now();
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return; // not valid in this protocol version
    }
    if (frame.type === "welcome" && !this.isOpen) this.#opened(frame);
    else if (frame.type === "bye") this.#bye = frame;
    else if (!this.#answer(frame)) this.onFrame(frame);
  }

  #answer(frame) {
    const request = this.#requests.get(frame.id);
    if (request === undefined) return false;
    this.#requests.delete(frame.id);
    this.env.clearTimeout(request.timer);
    if (frame.type === "error") request.reject(new RequestFailed(frame));
    else request.resolve(frame);
    return true;
  }

  // ── probing ───────────────────────────────────────────────────────────────────────────────────

  #tick() {
    const now = this.env.now();
    const hasSlept = now - this.#tickedAt > SLEPT_MS;
    this.#tickedAt = now;
    this.#watch = this.env.setTimeout(() => this.#tick(), WATCH_MS);
    if (now - this.#openedAt > STEADY_MS) this.#attempt = 0;
    if (hasSlept) this.#check(3000);
    else if (now - this.#receivedAt > 2 * this.#heartbeatMs) this.#check(ANSWER_TIMEOUT_MS);
  }

  /** Send a probe; without a reply in time the connection counts as lost. */
  async #check(timeoutMs) {
    if (this.#isChecking || !this.isOpen) return;
    this.#isChecking = true;
    const socket = this.#socket;
    const probedAt = this.env.now();
    try {
      const answer = await this.request(this.probe(), timeoutMs);
      this.onFrame(answer);
    } catch (error) {
      const wasSilent = error.code === "timeout" && this.#receivedAt <= probedAt;
      if (wasSilent && this.#socket === socket) this.#lost(3003, null);
    } finally {
      this.#isChecking = false;
    }
  }

  // ── ending ────────────────────────────────────────────────────────────────────────────────────

  /** Handle a lost socket: refresh the token, reconnect or stop. */
  async #lost(code, message) {
    const bye = this.#bye;
    this.#dropSocket();
    const verdict = classifyClose(bye?.code ?? code);
    const reason = message ?? verdict.reason ?? bye?.reason ?? null;
    if (verdict.expired && !this.#isRefreshing) {
      this.#isRefreshing = true;
      this.#setLink({ status: "connecting", attempt: this.#attempt, reason });
      const link = this.link;
      const isRefreshed = await this.refresh().catch(() => null);
      if (this.link !== link) return;
      if (isRefreshed) this.#connect();
      else if (isRefreshed === null) this.#wait("Can't reach the login service.", 0, false);
      else this.#setLink({ status: "stopped", reason, isExpired: true });
      return;
    }
    if (!verdict.retry) {
      this.#setLink({ status: "stopped", reason, isExpired: verdict.expired });
      return;
    }
    if (verdict.replaced && this.#wasReplaced()) {
      const why = "You're connected in too many windows. Close some and try again.";
      this.#setLink({ status: "stopped", reason: why, isExpired: false });
      return;
    }
    this.#wait(reason, bye?.retry_after_ms ?? 0, verdict.replaced);
  }

  /** Replaced twice in a short time: reconnecting would replace another window, and so on. */
  #wasReplaced() {
    const now = this.env.now();
    const isAgain = now - this.#replacedAt < REPLACED_MS;
    this.#replacedAt = now;
    return isAgain;
  }

  #wait(reason, retryAfterMs, isReplaced) {
    const delay = reconnectDelay(this.#attempt, this.env.random, retryAfterMs);
    this.#attempt += 1;
    const retryAt = this.env.now() + delay;
    this.#timer = this.env.setTimeout(() => this.#connect(), delay);
    this.#setLink({ status: "waiting", attempt: this.#attempt, retryAt, reason, isReplaced });
  }

  /** Close the socket and reject all pending requests. */
  #dropSocket() {
    this.env.clearTimeout(this.#timer);
    this.env.clearTimeout(this.#watch);
    const socket = this.#socket;
    this.#socket = null;
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close(NORMAL_CLOSE);
    }
    const requests = [...this.#requests.values()];
    this.#requests.clear();
    for (const { reject, timer } of requests) {
      this.env.clearTimeout(timer);
      reject(new RequestFailed(LOST));
    }
  }

  #setLink(link) {
    this.link = link;
    this.onLink(link);
  }
}
