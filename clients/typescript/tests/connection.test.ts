// The connection of a client: tokens, silence, wake-ups and reconnects. The test plays the gateway.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import { CLOSE_CODES } from "#dist/generated/frames.js";
import { ChatClient } from "tierchat";
import type { Fields } from "tierchat/state";

const STEP_MS = 250;

type Listener = (event: never) => void;

/** A socket whose server side is the test. */
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

/** A client whose clock and gateway are controlled by the test. */
class Stage {
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
    for (let left = ms; left > 0; left -= STEP_MS) {
      this.#context.mock.timers.tick(Math.min(left, STEP_MS));
      await flushPromises();
    }
  }

  sentFrames(type: string): Fields[] {
    return this.socket.sent.filter((frame) => frame.type === type);
  }
}

/** Wait until pending promises have settled. */
async function flushPromises(): Promise<void> {
  for (let turns = 0; turns < 5; turns += 1) await new Promise((done) => setImmediate(done));
}

function tokenOf(name: string, lifeS: number): string {
  const payload = { sub: "alice", iat: 1_000, exp: 1_000 + lifeS, jti: name };
  return `x.${btoa(JSON.stringify(payload))}.x`;
}

test("a silent connection is probed, and replaced if there is no response", async (context) => {
  const stage = new Stage(context);
  await stage.connect();

  await stage.advance(56_000);
  assert.equal(stage.sentFrames("sync").length, 1);
  assert.equal(stage.client.isOnline, true);
  await stage.advance(20_000);

  assert.equal(stage.sockets, 2);
  await stage.welcome();
  assert.equal(stage.client.isOnline, true);
});

test("a connection that responds to probes stays open", async (context) => {
  const stage = new Stage(context);
  await stage.connect();

  for (let minutes = 0; minutes < 3; minutes += 1) {
    await stage.advance(56_000);
    assert.equal(stage.sentFrames("sync").length, minutes + 1);
    stage.socket.sendFrame({ type: "page", id: 0, events: [], more: false });
  }

  assert.equal(stage.sockets, 1);
});

test("after a wake-up, the connection responds within seconds or is replaced", async (context) => {
  const stage = new Stage(context);
  await stage.connect();

  stage.client.setActive(true);
  await flushPromises();
  assert.equal(stage.sentFrames("sync").length, 1);
  stage.socket.sendFrame({ type: "page", id: 0, events: [], more: false });
  await stage.advance(6_000);
  assert.equal(stage.sockets, 1);
  stage.client.setActive(false);
  stage.client.setActive(true);
  await stage.advance(6_000);

  assert.equal(stage.sockets, 2);
});

test("a wake-up ends the wait for the next attempt", async (context) => {
  const stage = new Stage(context, 0.999);
  await stage.connect();
  stage.socket.close(1006);
  await flushPromises();
  assert.equal(stage.sockets, 1);

  stage.client.setActive(true);
  await flushPromises();

  assert.equal(stage.sockets, 2);
});

test("reconnects wait at most 2 s in the foreground, and 10 s otherwise", async (context) => {
  const stage = new Stage(context, 0.999);
  await stage.connect();
  /** Break the connection; return the ms until the next attempt. */
  const wait = async (): Promise<number> => {
    const before = stage.sockets;
    stage.socket.close(1006);
    await flushPromises();
    for (let ms = 0; ; ms += 500) {
      if (stage.sockets > before) return ms;
      await stage.advance(500);
    }
  };
  const waits: number[] = [];
  for (let attempt = 0; attempt < 6; attempt += 1) waits.push(await wait());
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);

  stage.client.setActive(true);

  assert.equal(await wait(), 2_000);
  stage.client.setActive(false);
  assert.equal(await wait(), 10_000);
});

test("a token is renewed before it expires, and again after a failure", async (context) => {
  const stage = new Stage(context);
  const tokens = [tokenOf("1", 40), tokenOf("2", 40), tokenOf("3", 40)];
  let calls = 0;
  stage.getToken = () => {
    calls += 1;
    if (calls === 3) throw new Error("no answer");
    return tokens.shift() ?? "";
  };
  await stage.connect();
  const renewed = () => stage.sentFrames("auth").length;
  const accept = async (): Promise<void> => {
    stage.socket.sendFrame({ type: "ok", id: stage.sentFrames("auth").at(-1)?.["id"] });
    await flushPromises();
  };

  await stage.advance(31_000);
  assert.equal(renewed(), 0);
  await stage.advance(1_000);
  assert.equal(renewed(), 1);
  await accept();
  await stage.advance(32_000); // fails
  assert.deepEqual([renewed(), calls], [1, 3]);
  await stage.advance(5_000);

  assert.deepEqual([renewed(), calls], [2, 4]);
  assert.equal(stage.sentFrames("auth").at(-1)?.["token"], tokenOf("3", 40));
  assert.equal(stage.sockets, 1);
});

test("a refused token is replaced once; then the client ends", async (context) => {
  const stage = new Stage(context);
  await stage.connect();

  stage.socket.close(CLOSE_CODES.unauthenticated);
  await stage.advance(1_000);
  assert.equal(stage.sockets, 2);
  assert.equal(stage.client.error, null);
  stage.socket.open();
  stage.socket.close(CLOSE_CODES.unauthenticated);
  await stage.advance(60_000);

  assert.equal(stage.sockets, 2);
  assert.match(String(stage.client.error), /refused the token/);
});

test("a login service that is down delays the connection", async (context) => {
  const stage = new Stage(context);
  stage.getToken = () => {
    throw new Error("no answer");
  };
  const connected = stage.client.connect();
  await stage.advance(2_000);
  assert.equal(stage.sockets, 0);

  stage.getToken = () => "token";
  await stage.advance(2_000);
  await stage.welcome();
  await connected;

  assert.equal(stage.client.isOnline, true);
});

test("a device that is replaced twice within a minute stops reconnecting", async (context) => {
  const stage = new Stage(context);
  await stage.connect();

  stage.socket.close(CLOSE_CODES.replaced);
  await stage.advance(1_000);
  await stage.welcome();
  assert.equal(stage.client.isOnline, true);
  stage.socket.close(CLOSE_CODES.replaced);
  await stage.advance(60_000);

  assert.equal(stage.sockets, 2);
  assert.match(String(stage.client.error), /another process uses device desk/);
});

test("the gateway's advice delays the next attempt", async (context) => {
  const stage = new Stage(context);
  await stage.connect();

  stage.socket.sendFrame({ type: "bye", code: 3000, reason: "shutdown", retry_after_ms: 8_000 });
  stage.socket.close(3000);
  await stage.advance(7_500);
  assert.equal(stage.sockets, 1);
  await stage.advance(1_000);

  assert.equal(stage.sockets, 2);
});

test("a connection without a welcome, or with invalid JSON, is dropped", async (context) => {
  const stage = new Stage(context);
  await stage.connect();
  stage.socket.sendText("{");
  await stage.advance(1_000);
  assert.equal(stage.sockets, 2);

  stage.socket.open();
  await stage.advance(9_500);
  assert.equal(stage.sockets, 2);
  await stage.advance(2_000);

  assert.equal(stage.sockets, 3);
});
