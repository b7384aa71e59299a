// The result of a send: the ref at once, the ack later.

import type { Acked } from "../state/events.js";

/**
 * An operation in the outbox. `await` it for the ack; the operation is also sent without `await`.
 *
 * It stays pending while the client is offline. If the server refuses the operation, the promise
 * rejects, and the client delivers an event `refused`.
 */
export class Sending implements PromiseLike<Acked> {
  /** The idempotency key of the operation. */
  readonly ref: string;
  readonly #acked: Promise<Acked>;

  /** @internal */
  constructor(ref: string, acked: Promise<Acked>) {
    this.ref = ref;
    this.#acked = acked;
    acked.catch(() => {}); // awaiting it is optional
  }

  /** Wait for the ack. */
  // biome-ignore lint/suspicious/noThenProperty: `await` waits for the ack
  then<R = Acked, E = never>(
    onAcked?: ((acked: Acked) => R | PromiseLike<R>) | null,
    onRefused?: ((error: unknown) => E | PromiseLike<E>) | null,
  ): Promise<R | E> {
    return this.#acked.then(onAcked, onRefused);
  }
}
