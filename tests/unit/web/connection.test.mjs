// The connection: it comes back when it should, stays away when it must, and notices silence.
// Time, sockets and randomness are fakes that the test moves.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection } from "../../../chatserver/web/connection.js";
import { FakeWorld } from "./fakes.mjs";

const WELCOME = { type: "welcome", user: "alice", epoch: "e1", seq: 0, heartbeat_ms: 25_000 };

/** A world with one connection, and what it told. */
function world({
  refresh = async () => true,
  random = () => 0.5,
  hello = () => ({ type: "hello" }),
} = {}) {
  const here = new FakeWorld(random);
  here.links = [];
  here.frames = [];
  here.open = async () => {
    await here.settle();
    here.socket.onopen();
    here.socket.say(WELCOME);
    await here.settle();
  };
  here.connection = new Connection({
    url: "ws://chat.example/",
    env: here.env,
    refresh,
    hello,
    probe: () => ({ type: "sync" }),
    onFrame: (frame) => here.frames.push(frame),
    onLink: (link) => here.links.push(link.status),
  });
  here.connection.start();
  return here;
}

test("hello is the first frame, and welcome opens", async () => {
  const here = world();

  await here.open();

  assert.equal(here.socket.sent[0].type, "hello");
  assert.equal(here.connection.link.status, "open");
  assert.deepEqual(here.links, ["connecting", "open"]);
});

test("an answer goes to the request with its number, an error rejects it", async () => {
  const here = world();
  await here.open();

  const good = here.connection.request({ type: "chats" });
  const bad = here.connection.request({ type: "history" });
  const [first, second] = here.socket.sent.slice(1);
  here.socket.say({
    type: "error",
    id: second.id,
    code: "not_found",
    message: "no",
    temporary: false,
  });
  here.socket.say({ type: "page", id: first.id, chats: [] });

  assert.equal((await good).type, "page");
  await assert.rejects(bad, { code: "not_found", isTemporary: false });
});

test("a lost connection rejects what waits and comes back with growing delays", async () => {
  const here = world();
  await here.open();
  const waiting = here.connection.request({ type: "chats" });

  here.socket.end(1006);

  await assert.rejects(waiting, { code: "disconnected" });
  const delays = [];
  for (let i = 0; i < 7; i += 1) {
    delays.push(here.connection.link.retryAt - here.now);
    await here.pass(delays.at(-1));
    here.socket.end(1006);
    await here.settle();
  }
  assert.deepEqual(delays, [500, 1000, 2000, 4000, 5000, 5000, 5000]);
});

test("the delays start over only after the connection has lasted", async () => {
  const here = world();
  for (let i = 0; i < 4; i += 1) {
    await here.open();
    here.socket.end(1006);
    await here.settle();
    await here.pass(here.connection.link.retryAt - here.now);
  }
  await here.open();
  here.socket.end(1006);
  await here.settle();
  assert.equal(here.connection.link.retryAt - here.now, 5000);

  await here.pass(5000);
  await here.open();
  await here.pass(11_000);
  here.socket.end(1006);
  await here.settle();
  assert.equal(here.connection.link.retryAt - here.now, 500);
});

test("the code and retry delay of bye are honored", async () => {
  const here = world({ random: () => 0 });
  await here.open();

  here.socket.say({ type: "bye", code: 3000, reason: "shutdown", retry_after_ms: 8000 });
  here.socket.end(3000);
  await here.settle();

  assert.equal(here.connection.link.retryAt - here.now, 8000);
});

test("codes from 3500 stop, and only the user goes on", async () => {
  const here = world();
  await here.open();

  here.socket.end(3502);
  await here.pass(120_000);

  assert.equal(here.connection.link.status, "stopped");
  assert.equal(here.sockets.length, 1);
  here.connection.start();
  await here.settle();
  assert.equal(here.sockets.length, 2);
});

test("an expired token is replaced once without a word", async () => {
  let refreshed = 0;
  const here = world({ refresh: async () => ((refreshed += 1), true) });
  await here.open();

  here.socket.end(3500);
  await here.settle();
  assert.equal(here.sockets.length, 2);

  here.socket.onopen();
  here.socket.end(3500);
  await here.settle();

  assert.equal(refreshed, 1);
  assert.equal(here.connection.link.status, "stopped");
  assert.equal(here.connection.link.isExpired, true);
});

test("a token that cannot be replaced now is tried again later", async () => {
  const here = world({ refresh: async () => Promise.reject(new Error("no network")) });
  await here.open();

  here.socket.end(3500);
  await here.settle();

  assert.equal(here.connection.link.status, "waiting");
});

test("a login service that is away delays the connection", async () => {
  let isAway = true;
  const hello = async () => {
    if (isAway) throw new Error("The server cannot be reached.");
    return { type: "hello" };
  };
  const here = world({ hello });
  await here.settle();
  assert.equal(here.connection.link.status, "waiting");
  assert.equal(here.connection.link.reason, "The server cannot be reached.");

  isAway = false;
  await here.pass(11_000);

  assert.equal(here.sockets.length, 1);
});

test("a session pushed out by its twin comes back once, not in responses for ever", async () => {
  const here = world();
  await here.open();
  here.socket.end(3004);
  await here.settle();
  assert.equal(here.connection.link.isReplaced, true);

  await here.pass(500);
  await here.open();
  here.socket.end(3004);
  await here.settle();

  assert.equal(here.connection.link.status, "stopped");
});

test("a server that does not welcome is given up after ten seconds", async () => {
  const here = world();
  await here.settle();
  here.socket.onopen();

  await here.pass(10_000);

  assert.equal(here.connection.link.status, "waiting");
  assert.equal(here.sockets[0].isClosed, true);
});

test("a silent socket is asked, and dropped when it does not answer", async () => {
  const here = world();
  await here.open();

  await here.pass(56_000);
  assert.equal(here.socket.sent.at(-1).type, "sync");
  assert.equal(here.connection.link.status, "open");

  await here.pass(10_000);
  assert.notEqual(here.connection.link.status, "open");
});

test("a socket that answers when asked stays", async () => {
  const here = world();
  await here.open();

  await here.pass(56_000);
  here.socket.say({ type: "page", id: here.socket.sent.at(-1).id, events: [] });
  await here.pass(10_000);

  assert.equal(here.connection.link.status, "open");
  assert.equal(here.sockets.length, 1);
  assert.equal(here.frames.at(-1).type, "page");
});

test("after sleep the socket is asked at once and replaced within seconds", async () => {
  const here = world();
  await here.open();

  here.sleep(3_600_000);
  await here.pass(0);

  assert.equal(here.socket.sent.at(-1).type, "sync");
  await here.pass(3000);
  assert.notEqual(here.connection.link.status, "open");
});

test("a network that comes back ends the waiting", async () => {
  const here = world({ random: () => 0.999 });
  await here.open();
  here.socket.end(1006);
  await here.settle();

  here.connection.suspect();
  await here.settle();

  assert.equal(here.connection.link.status, "connecting");
  assert.equal(here.sockets.length, 2);
});

test("a request without a reply times out, and the connection is probed", async () => {
  const here = world();
  await here.open();

  const request = here.connection.request({ type: "history" });
  const failed = assert.rejects(request, { code: "timeout", isTemporary: true });
  await here.pass(10_000);

  await failed;
  assert.equal(here.socket.sent.at(-1).type, "sync");
});

test("frames that are not JSON, and late ones, harm nothing", async () => {
  const here = world();
  await here.open();
  const [old] = here.sockets;

  old.onmessage({ data: "{" });
  here.connection.stop();

  assert.equal(old.onmessage, null);
  assert.equal(here.connection.link.status, "idle");
});
