// Pending requests by number.
//
// Queries and idempotent requests (`isRetried`) are sent again on the next connection, until their
// deadline. At most `IN_FLIGHT_MAX` requests are in flight (the server allows 32); the others are
// queued in order.

import { WATCH_MAX } from "../generated/frames.js";
import { ChatError, parseError } from "./errors.js";
import type { Fields } from "./model.js";

const IN_FLIGHT_MAX = 24;
const CONFLICT_RETRY_MS = 100;
const LONE_SURROGATE = /[\uD800-\uDFFF]/u;

/**
 * Check that all text can be encoded as UTF-8.
 *
 * @throws {@link ChatError} `bad_request`: a text contains a lone surrogate.
 */
export function checkText(value: unknown): void {
  if (typeof value === "string") {
    if (LONE_SURROGATE.test(value)) {
      throw new ChatError("bad_request", "text contains a lone surrogate");
    }
  } else if (typeof value === "object" && value !== null) {
    for (const [name, inner] of Object.entries(value)) {
      checkText(name);
      checkText(inner);
    }
  }
}

/** Return frames for presence subscriptions, each with at most `WATCH_MAX` users. */
export function buildUserFrames(type: "watch" | "unwatch", users: string[]): Fields[] {
  const count = Math.ceil(users.length / WATCH_MAX);
  return Array.from({ length: count }, (_, index) => {
    return { type, users: users.slice(index * WATCH_MAX, (index + 1) * WATCH_MAX) };
  });
}

/** One request. Exactly one callback is called, once; none if the request is removed. */
export interface Request {
  readonly fields: Fields;
  readonly onAnswer: (frame: Fields, nowS: number) => void;
  readonly onError: (error: ChatError, nowS: number) => void;
  readonly deadlineS: number;
  /** True if the request is sent again on the next connection. */
  readonly isRetried: boolean;
  id: number;
  /** Earliest retry after a conflict. */
  notBeforeS: number;
}

/** The response to a request: its number, and the frame or the error. */
export type Answer = [number, Fields | ChatError];

/** The requests of one device. */
export class Requests {
  readonly #requestsMax: number;
  #queued = new Map<number, Request>();
  readonly #inFlight = new Map<number, Request>();
  #lastId = 0;

  constructor(requestsMax: number) {
    this.#requestsMax = requestsMax;
  }

  nextId(): number {
    this.#lastId += 1;
    return this.#lastId;
  }

  /**
   * Add a request to the queue.
   *
   * @throws {@link ChatError} `overloaded`: too many requests are pending.
   */
  add(request: Omit<Request, "id" | "notBeforeS">): Request {
    if (request.isRetried && this.#queued.size + this.#inFlight.size >= this.#requestsMax) {
      const text = `${this.#requestsMax} requests are pending; wait for responses`;
      throw new ChatError("overloaded", text);
    }
    const added = { ...request, id: this.nextId(), notBeforeS: 0 };
    this.#queued.set(added.id, added);
    return added;
  }

  /** Return the frames to send now. */
  nextFrames(nowS: number): Fields[] {
    const frames: Fields[] = [];
    for (const request of [...this.#queued.values()]) {
      if (request.notBeforeS > nowS) continue;
      if (this.#inFlight.size >= IN_FLIGHT_MAX) break;
      this.#queued.delete(request.id);
      this.#inFlight.set(request.id, request);
      frames.push({ ...request.fields, id: request.id });
    }
    return frames;
  }

  /** Handle a response or an error; return false if no request matches it. */
  handleAnswer(frame: Fields, nowS: number): boolean {
    const number = typeof frame["id"] === "number" ? frame["id"] : -1;
    const request = this.#inFlight.get(number);
    if (request === undefined) return false;
    this.#inFlight.delete(number);
    if (frame.type !== "error") {
      request.onAnswer(frame, nowS);
      return true;
    }
    const error = parseError(frame as Parameters<typeof parseError>[0]);
    if (request.isRetried && error.isTemporary && error.code === "conflict") {
      // A concurrent change: a retry either succeeds or returns a permanent error.
      request.notBeforeS = nowS + (error.retryAfterMs || CONFLICT_RETRY_MS) / 1000;
      if (request.notBeforeS < request.deadlineS) {
        this.#queued.set(request.id, request);
        return true;
      }
    }
    request.onError(error, nowS);
    return true;
  }

  /** Drop a request whose caller no longer waits. */
  remove(number: number): void {
    this.#queued.delete(number);
    this.#inFlight.delete(number);
  }

  /** Requeue the requests to send again on the next connection; drop the others. */
  handleDisconnect(): void {
    const retried = this.#listAll().filter(({ isRetried }) => isRetried);
    retried.sort((a, b) => a.id - b.id);
    this.#queued = new Map(retried.map((request) => [request.id, request]));
    this.#inFlight.clear();
  }

  /** Fail the requests whose deadline has passed. */
  expire(nowS: number): void {
    for (const request of this.#listAll()) {
      if (request.deadlineS > nowS) continue;
      this.remove(request.id);
      request.onError(new ChatError("unavailable", "no response in time"), nowS);
    }
  }

  /** Return the deadlines of all requests, and the retry times after conflicts. */
  listDueTimes(): number[] {
    const retries = [...this.#queued.values()].map(({ notBeforeS }) => notBeforeS);
    const deadlines = this.#listAll().map(({ deadlineS }) => deadlineS);
    return [...deadlines, ...retries.filter((timeS) => timeS > 0)];
  }

  #listAll(): Request[] {
    return [...this.#inFlight.values(), ...this.#queued.values()];
  }
}
