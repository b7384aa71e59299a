// Reconnect policy: whether and when to reconnect after a close.

import { CLOSE_CODES } from "../generated/frames.js";
import { ChatError } from "./errors.js";

const WAIT_S_MIN = 0.5;
const WAIT_S_MAX = 10;
const FOREGROUND_WAIT_S_MAX = 2; // the user is looking at the application
const REPLACED_S = 60; // replaced twice within this time: another process uses the device name
const STABLE_S = 5; // a connection that lasts this long resets the backoff

/** Returns a random number between `low` and `high`. */
export type Uniform = (low: number, high: number) => number;

/** Exponential backoff with full jitter, so that clients do not reconnect in lockstep. */
export class ReconnectPolicy {
  readonly #uniform: Uniform;
  #attempts = 0;
  #replacedAtS = Number.NEGATIVE_INFINITY;
  #tokenRejections = 0; // in a row

  constructor(uniform: Uniform) {
    this.#uniform = uniform;
  }

  /** Record how long a connection was open; a stable connection resets the backoff. */
  recordDuration(seconds: number): void {
    if (seconds >= STABLE_S) this.#attempts = 0;
  }

  /**
   * Return the delay before the next attempt, never less than the server advises. `isForeground`:
   * the application reported that it is in the foreground.
   */
  nextS(adviceMs: number | null = null, isForeground = false): number {
    this.#attempts += 1;
    const limit = isForeground ? FOREGROUND_WAIT_S_MAX : WAIT_S_MAX;
    const bound = Math.min(limit, WAIT_S_MIN * 2 ** Math.min(this.#attempts, 10));
    if (adviceMs !== null) return adviceMs / 1000 + this.#uniform(0, WAIT_S_MIN);
    return Math.max(WAIT_S_MIN, this.#uniform(0, bound));
  }

  /** Record that the gateway accepted the token. */
  recordWelcome(): void {
    this.#tokenRejections = 0;
  }

  /**
   * Check that the client may reconnect after a close. `canRenew`: a new token may be accepted.
   *
   * @throws {@link ChatError} the client must not reconnect; the message states the cause.
   */
  handleClose(code: number, reason: string, nowS: number, canRenew: boolean, device: string): void {
    if (code === CLOSE_CODES.unauthenticated) {
      this.#tokenRejections += 1;
      if (!canRenew || this.#tokenRejections > 1) {
        throw new ChatError("unauthenticated", `the gateway refused the token: ${reason}`);
      }
    } else if (code === CLOSE_CODES.replaced) {
      if (nowS - this.#replacedAtS < REPLACED_S) {
        throw new ChatError("conflict", `another process uses device ${device}`);
      }
      this.#replacedAtS = nowS;
    } else if (code >= 3500 && code <= 3999) {
      throw new ChatError("internal", `the gateway closed the session: ${reason}`);
    }
  }
}
