// One connection that is kept: opened, watched, opened again.
//
//   idle → connecting → open → waiting → connecting …        stopped: only the user goes on
//
// Owns the socket, the request numbers and the timers; knows nothing of chats. What it learns goes
// out by `onLink(link)` (where it stands), `onFrame(frame)` (what nobody asked for) and the
// promises of `request`.
//
// A browser does not show a page the pings of a WebSocket, so silence is found by asking: after
// two heartbeats without a frame, after sleep, and when the network says that it changed.

import { judgeClose, reconnectDelay } from "./backoff.js";

const SUBPROTOCOL = "chat.v1";
const OPEN_TIMEOUT_MS = 10_000;
const ANSWER_TIMEOUT_MS = 10_000;
const WATCH_MS = 5000;
const SLEPT_MS = 3 * WATCH_MS; // a timer that is this late slept with the machine
const QUIET_MS = 2000; // heard from the server within this: no reason to ask
const REPLACED_MS = 60_000;
const STEADY_MS = 5000; // an open connection must last this long before the delays start over
const NORMAL_CLOSE = 1000;

/** A request that was not done, in the words of an `error` frame. */
export class RequestFailed extends Error {
  constructor({ code, message, temporary = false, retry_after_ms: retryAfterMs = 0 }) {
    super(message);
    this.code = code;
    this.isTemporary = temporary;
    this.retryAfterMs = retryAfterMs;
  }
}

const LOST = { code: "disconnected", message: "The connection was lost.", temporary: true };
const SILENT = { code: "timeout", message: "The server did not answer in time.", temporary: true };

export class Connection {
  #socket = null;
  #requests = new Map(); // id → {resolve, reject, timer}
  #nextId = 1;
  #timer = null; // of the state: opening, or waiting
  #watch = null;
  #attempt = 0;
  #isRefreshing = false; // an expired token is replaced once; a second refusal stops
  #bye = null;
  #heardAt = 0;
  #openedAt = 0;
  #replacedAt = -Infinity;
  #tickedAt = 0;
  #heartbeatMs = 25_000;
  #isChecking = false;
  link = { status: "idle" };

  /**
   * `hello()` gives the first frame, or throws; `refresh()` gets a new token after the old one
   * expired and says whether it could; `probe()` gives a cheap request that the server must answer.
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
    this.#letGo();
    this.#move({ status: "idle" });
  }

  /** Something hints that the connection may be dead: find out soon, or come back at once. */
  suspect() {
    if (this.link.status === "waiting") this.start();
    else if (this.env.now() - this.#heardAt > QUIET_MS) this.#check(3000);
  }

  get isOpen() {
    return this.link.status === "open";
  }

  /** Send a frame that has no answer; says whether it could. */
  notify(frame) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  /**
   * Send a request and wait for its answer.
   *
   * Rejects with `RequestFailed`: the server's error, `disconnected` or `timeout`. After the last
   * two nobody knows whether it was done.
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
    this.#letGo();
    this.#move({ status: "connecting", attempt: this.#attempt, reason: this.link.reason ?? null });
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
    this.#move(this.link);
    this.#watch = this.env.setTimeout(() => this.#tick(), WATCH_MS);
  }

  // ── frames ────────────────────────────────────────────────────────────────────────────────────

  #receive(data) {
    this.#heardAt = this.env.now();
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return; // not for this version; the server keeps to its protocol, or closes
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

  // ── watching ──────────────────────────────────────────────────────────────────────────────────

  #tick() {
    const now = this.env.now();
    const hasSlept = now - this.#tickedAt > SLEPT_MS;
    this.#tickedAt = now;
    this.#watch = this.env.setTimeout(() => this.#tick(), WATCH_MS);
    if (now - this.#openedAt > STEADY_MS) this.#attempt = 0;
    if (hasSlept) this.#check(3000);
    else if (now - this.#heardAt > 2 * this.#heartbeatMs) this.#check(ANSWER_TIMEOUT_MS);
  }

  /** Ask for a sign of life; without one in time the connection is as good as closed. */
  async #check(timeoutMs) {
    if (this.#isChecking || !this.isOpen) return;
    this.#isChecking = true;
    const socket = this.#socket;
    const askedAt = this.env.now();
    try {
      const answer = await this.request(this.probe(), timeoutMs);
      this.onFrame(answer);
    } catch (error) {
      const wasSilent = error.code === "timeout" && this.#heardAt <= askedAt;
      if (wasSilent && this.#socket === socket) this.#lost(3003, null);
    } finally {
      this.#isChecking = false;
    }
  }

  // ── ending ────────────────────────────────────────────────────────────────────────────────────

  /** The socket is gone, or given up: decide how to go on. */
  async #lost(code, message) {
    const bye = this.#bye;
    this.#letGo();
    const verdict = judgeClose(bye?.code ?? code);
    const reason = message ?? verdict.reason ?? bye?.reason ?? null;
    if (verdict.expired && !this.#isRefreshing) {
      this.#isRefreshing = true;
      this.#move({ status: "connecting", attempt: this.#attempt, reason });
      const link = this.link;
      const isRefreshed = await this.refresh().catch(() => null);
      if (this.link !== link) return;
      if (isRefreshed) this.#connect();
      else if (isRefreshed === null) this.#wait("The login service cannot be reached.", 0, false);
      else this.#move({ status: "stopped", reason, isExpired: true });
      return;
    }
    if (!verdict.retry) {
      this.#move({ status: "stopped", reason, isExpired: verdict.expired });
      return;
    }
    if (verdict.replaced && this.#wasReplaced()) {
      const why = "You are connected in too many windows. Close some of them.";
      this.#move({ status: "stopped", reason: why, isExpired: false });
      return;
    }
    this.#wait(reason, bye?.retry_after_ms ?? 0, verdict.replaced);
  }

  /** Pushed out twice in a short time: coming back would push out another window, and so on. */
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
    this.#move({ status: "waiting", attempt: this.#attempt, retryAt, reason, isReplaced });
  }

  /** Drop the socket and all that waits for it, silently. */
  #letGo() {
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

  #move(link) {
    this.link = link;
    this.onLink(link);
  }
}
