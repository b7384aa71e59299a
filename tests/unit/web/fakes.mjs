// A socket and a clock that the test moves.

export class FakeSocket {
  sent = [];
  isClosed = false;

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.isClosed = true;
  }

  say(frame) {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  end(code) {
    this.onclose?.({ code });
  }
}

/** Everything outside of a connection: `env` is for it, the rest is for the test. */
export class FakeWorld {
  now = 1_000_000;
  sockets = [];
  #timers = new Map();
  #ids = 0;

  constructor(random = () => 0.5) {
    this.env = {
      openSocket: () => (this.sockets.push(new FakeSocket()), this.socket),
      setTimeout: (work, ms) => this.#start(work, ms),
      clearTimeout: (id) => this.#timers.delete(id),
      now: () => this.now,
      newId: () => `ref-${(this.#ids += 1)}`,
      random,
    };
  }

  #start(work, ms) {
    this.#ids += 1;
    this.#timers.set(this.#ids, { at: this.now + ms, work });
    return this.#ids;
  }

  /** The newest socket. */
  get socket() {
    return this.sockets.at(-1);
  }

  /** Let everything happen that waits for no time. */
  async settle() {
    for (let i = 0; i < 30; i += 1) await null;
  }

  /** Let time pass, timer by timer. */
  async pass(ms) {
    const end = this.now + ms;
    for (;;) {
      await this.settle();
      const [id, next] = [...this.#timers].sort((a, b) => a[1].at - b[1].at)[0] ?? [];
      if (next === undefined || next.at > end) break;
      this.#timers.delete(id);
      this.now = Math.max(this.now, next.at);
      next.work();
    }
    this.now = Math.max(this.now, end);
    await this.settle();
  }

  /** Let the machine sleep: time jumps, no timer runs in between. */
  sleep(ms) {
    this.now += ms;
  }
}
