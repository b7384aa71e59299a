// The result of sending: a ref at once, an ack later.

import type { Acked } from "../state/events.js";

/**
 * An operation in the outbox. `await` it for its ack; without `await`, it is sent all the same.
 *
 * It waits as long as necessary, also offline. A refusal rejects it and is an event `refused`.
 */
export class Sending implements PromiseLike<Acked> {
  /** The idempotency key of the operation. */
  readonly ref: string;
  readonly #acked: Promise<Acked>;

  /** @internal */
  constructor(ref: string, acked: Promise<Acked>) {
    this.ref = ref;
    this.#acked = acked;
    acked.catch(() => {}); // nobody has to wait for it
  }

  /** Wait for the ack. */
  then<R = Acked, E = never>(
    onAcked?: ((acked: Acked) => R | PromiseLike<R>) | null,
    onRefused?: ((error: unknown) => E | PromiseLike<E>) | null,
  ): Promise<R | E> {
    return this.#acked.then(onAcked, onRefused);
  }
}
