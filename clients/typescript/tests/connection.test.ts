// The connection of a client: tokens, silence, wake-ups and reconnects, with a fake gateway.

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { ChatClient } from "tierchat";
import type { Fields } from "tierchat/state";
import { CLOSE_CODES } from "#dist/generated/frames.js";

const STEP_MS = 250;

type Listener = (event: never) => void;

/** A socket on which the test sends the server's frames. */
class TestSocket {
  static readonly all: TestSocket[] = [];
  readyState = 0;
  readonly sent: Fields[] = [];
  readonly #listeners = new Map<string, Listener[]>();

  constructor() {
    TestSocket.all.push(this);
  }

  addEventListener(type: string, listener: Listener): void {
    this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener]);
  }

  send(data: string): void {
    this.sent.push(JSON.parse(data) as Fields);
  }

  close(code = 1000): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.#emit("close", { code, reason: "" });
  }

  open(): void {
    this.readyState = 1;
    this.#emit("open", {});
  }

  sendFrame(frame: object): void {
    this.#emit("message", { data: JSON.stringify(frame) });
  }

  sendText(data: string): void {
    this.#emit("message", { data });
  }

  #emit(type: string, event: object): void {
    for (const listener of this.#listeners.get(type) ?? []) listener(event as never);
  }
}

/** A client with a clock and a gateway that the test controls. */
class Fixture {
  readonly client: ChatClient;
  /** Returns the next token, or throws. */
  getToken: () => string = () => "token";
  readonly #context: TestContext;

  constructor(context: TestContext, random = 0) {
    context.mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_000_000 });
    context.mock.method(performance, "now", () => Date.now());
    context.mock.method(Math, "random", () => random);
    TestSocket.all.length = 0;
    this.#context = context;
    this.client = new ChatClient({
      url: "ws://chat.example/",
      device: "desk",
      getToken: () => this.getToken(),
      WebSocket: TestSocket,
    });
    context.after(() => this.client.close());
  }

  get socket(): TestSocket {
    const last = TestSocket.all.at(-1);
    assert.ok(last !== undefined);
    return last;
  }

  get sockets(): number {
    return TestSocket.all.length;
  }

  /** Connect; return once the gateway has welcomed the device. */
  async connect(): Promise<void> {
    const connected = this.client.connect();
    connected.catch(() => {});
    await flushPromises();
    await this.welcome();
    await connected;
  }

  async welcome(): Promise<void> {
    this.socket.open();
    await flushPromises();
    this.socket.sendFrame({ type: "welcome", user: "alice", epoch: "e1", seq: 0, large: [] });
    await flushPromises();
  }

  async advance(ms: number): Promise<void> {
    for (let remaining = ms; remaining > 0; remaining -= STEP_MS) {
      this.#context.mock.timers.tick(Math.min(remaining, STEP_MS));
      await flushPromises();
    }
  }

  sentFrames(type: string): Fields[] {
    return this.socket.sent.filter((frame) => frame.type === type);
  }
}

/** Wait until pending promises have settled. */
async function flushPromises(): Promise<void> {
  for (let count = 0; count < 5; count += 1) await new Promise((resolve) => setImmediate(resolve));
}

function createToken(name: string, lifeS: number): string {
  const payload = { sub: "alice", iat: 1_000, exp: 1_000 + lifeS, jti: name };
  return `x.${btoa(JSON.stringify(payload))}.x`;
}

test("a silent connection is probed, and replaced if there is no response", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();

  await fixture.advance(56_000);
  assert.equal(fixture.sentFrames("sync").length, 1);
  assert.equal(fixture.client.isOnline, true);
  await fixture.advance(20_000);

  assert.equal(fixture.sockets, 2);
  await fixture.welcome();
  assert.equal(fixture.client.isOnline, true);
});

test("a connection that responds to probes stays open", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();

  for (let minutes = 0; minutes < 3; minutes += 1) {
    await fixture.advance(56_000);
    assert.equal(fixture.sentFrames("sync").length, minutes + 1);
    fixture.socket.sendFrame({ type: "page", id: 0, events: [], more: false });
  }

  assert.equal(fixture.sockets, 1);
});

test("after a wake-up, the connection responds within seconds or is replaced", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();

  fixture.client.setActive(true);
  await flushPromises();
  assert.equal(fixture.sentFrames("sync").length, 1);
  fixture.socket.sendFrame({ type: "page", id: 0, events: [], more: false });
  await fixture.advance(6_000);
  assert.equal(fixture.sockets, 1);
  fixture.client.setActive(false);
  fixture.client.setActive(true);
  await fixture.advance(6_000);

  assert.equal(fixture.sockets, 2);
});

test("a wake-up ends the wait for the next attempt", async (context) => {
  const fixture = new Fixture(context, 0.999);
  await fixture.connect();
  fixture.socket.close(1006);
  await flushPromises();
  assert.equal(fixture.sockets, 1);

  fixture.client.setActive(true);
  await flushPromises();

  assert.equal(fixture.sockets, 2);
});

test("reconnects wait at most 2 s in the foreground, and 10 s otherwise", async (context) => {
  const fixture = new Fixture(context, 0.999);
  await fixture.connect();
  /** Break the connection; return the ms until the next attempt. */
  const wait = async (): Promise<number> => {
    const before = fixture.sockets;
    fixture.socket.close(1006);
    await flushPromises();
    for (let ms = 0; ; ms += 500) {
      if (fixture.sockets > before) return ms;
      await fixture.advance(500);
    }
  };
  const waits: number[] = [];
  for (let attempt = 0; attempt < 6; attempt += 1) waits.push(await wait());
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);

  fixture.client.setActive(true);

  assert.equal(await wait(), 2_000);
  fixture.client.setActive(false);
  assert.equal(await wait(), 10_000);
});

test("a token is renewed before it expires, and again after a failure", async (context) => {
  const fixture = new Fixture(context);
  const tokens = [createToken("1", 40), createToken("2", 40), createToken("3", 40)];
  let calls = 0;
  fixture.getToken = () => {
    calls += 1;
    if (calls === 3) throw new Error("no answer");
    return tokens.shift() ?? "";
  };
  await fixture.connect();
  const renewed = () => fixture.sentFrames("auth").length;
  const accept = async (): Promise<void> => {
    fixture.socket.sendFrame({ type: "ok", id: fixture.sentFrames("auth").at(-1)?.["id"] });
    await flushPromises();
  };

  await fixture.advance(31_000);
  assert.equal(renewed(), 0);
  await fixture.advance(1_000);
  assert.equal(renewed(), 1);
  await accept();
  await fixture.advance(32_000); // fails
  assert.deepEqual([renewed(), calls], [1, 3]);
  await fixture.advance(5_000);

  assert.deepEqual([renewed(), calls], [2, 4]);
  assert.equal(fixture.sentFrames("auth").at(-1)?.["token"], createToken("3", 40));
  assert.equal(fixture.sockets, 1);
});

test("a listener of one type gets only its events, until it is removed", async (context) => {
  const fixture = new Fixture(context);
  const users: string[] = [];
  const remove = fixture.client.on("connected", ({ user }) => void users.push(user));
  await fixture.connect();
  remove();
  fixture.socket.close(CLOSE_CODES.shutdown);
  await fixture.advance(20_000);

  assert.deepEqual(users, [fixture.client.user]);
});

test("a refused token is replaced once; then the client ends", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();

  fixture.socket.close(CLOSE_CODES.unauthenticated);
  await fixture.advance(1_000);
  assert.equal(fixture.sockets, 2);
  assert.equal(fixture.client.error, null);
  fixture.socket.open();
  fixture.socket.close(CLOSE_CODES.unauthenticated);
  await fixture.advance(60_000);

  assert.equal(fixture.sockets, 2);
  assert.match(String(fixture.client.error), /refused the token/);
});

test("a login service that is down delays the connection", async (context) => {
  const fixture = new Fixture(context);
  fixture.getToken = () => {
    throw new Error("no answer");
  };
  const connected = fixture.client.connect();
  await fixture.advance(2_000);
  assert.equal(fixture.sockets, 0);

  fixture.getToken = () => "token";
  await fixture.advance(2_000);
  await fixture.welcome();
  await connected;

  assert.equal(fixture.client.isOnline, true);
});

test("a device that is replaced twice within a minute stops reconnecting", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();

  fixture.socket.close(CLOSE_CODES.replaced);
  await fixture.advance(1_000);
  await fixture.welcome();
  assert.equal(fixture.client.isOnline, true);
  fixture.socket.close(CLOSE_CODES.replaced);
  await fixture.advance(60_000);

  assert.equal(fixture.sockets, 2);
  assert.match(String(fixture.client.error), /another process uses device desk/);
});

test("the gateway's advice delays the next attempt", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();

  fixture.socket.sendFrame({ type: "bye", code: 3000, reason: "shutdown", retry_after_ms: 8_000 });
  fixture.socket.close(3000);
  await fixture.advance(7_500);
  assert.equal(fixture.sockets, 1);
  await fixture.advance(1_000);

  assert.equal(fixture.sockets, 2);
});

test("a connection without a welcome, or with invalid JSON, is dropped", async (context) => {
  const fixture = new Fixture(context);
  await fixture.connect();
  fixture.socket.sendText("{");
  await fixture.advance(1_000);
  assert.equal(fixture.sockets, 2);

  fixture.socket.open();
  await fixture.advance(9_500);
  assert.equal(fixture.sockets, 2);
  await fixture.advance(2_000);

  assert.equal(fixture.sockets, 3);
});
