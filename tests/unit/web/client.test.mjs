// The client between a server and a user: what it sends, when, and how often.
// The server is a fake socket that the test speaks for.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ChatClient } from "../../../chatserver/web/client.js";
import { unreadOf } from "../../../chatserver/web/state/chats.js";
import { createStore } from "../../../chatserver/web/store.js";
import { EPOCH, message, messageEvent, messages, summary } from "./builders.mjs";
import { FakeWorld } from "./fakes.mjs";

/** A client that is connected; `log` is what the server has in its one chat. */
async function client(log = []) {
  const here = new FakeWorld();
  here.store = createStore();
  here.client = new ChatClient({
    store: here.store,
    env: here.env,
    url: "ws://chat.example/",
    device: { id: "device", renew: () => (here.client.device.id = "another") },
    session: async () => ({ token: "token" }),
    refresh: async () => false,
    onUser: () => {},
  });
  here.open = async (seq = 0) => {
    await here.settle();
    here.socket.onopen();
    const limits = { page_max: 200 };
    const place = { user: "alice", epoch: EPOCH, seq };
    here.socket.say({ type: "welcome", ...place, limits, heartbeat_ms: 25_000 });
    await here.settle();
  };
  /** The requests of a type that the newest socket got. */
  here.asked = (type) => here.socket.sent.filter((frame) => frame.type === type);
  here.answer = async (request, frame) => {
    here.socket.say({ id: request.id, ...frame });
    await here.settle();
  };
  here.refuse = (request, code, temporary, message = "why") =>
    here.answer(request, { type: "error", code, message, temporary });
  here.ack = (send, seq) =>
    here.answer(send, { type: "ack", ref: send.ref, seq, ts: seq * 1e6, durability: "hot" });
  here.chat = () => here.store.state.chats.get("c1");
  here.client.start();
  await here.open();
  const line = summary({ top: log.length, read: 0, ...(log.length ? { last: log.at(-1) } : {}) });
  await here.answer(here.asked("chats")[0], { type: "page", chats: [line], more: false });
  here.client.setAttention({ isVisible: true, isFocused: true });
  here.client.openChat("c1");
  await here.settle();
  const page = { type: "page", chat: "c1", messages: log, tier: "hot", more: false };
  await here.answer(here.asked("history")[0], page);
  return here;
}

test("messages of a chat are sent one after the other, in the order they were written", async () => {
  const here = await client();
  for (const text of ["one", "two", "three"]) here.client.send("c1", text);
  assert.deepEqual(
    here.asked("send").map((f) => f.body),
    ["one"],
  );

  await here.ack(here.asked("send")[0], 1);
  await here.ack(here.asked("send")[1], 2);

  assert.deepEqual(
    here.asked("send").map((f) => f.body),
    ["one", "two", "three"],
  );
});

test("a message that is refused for now is tried again, before what was written later", async () => {
  const here = await client();
  here.client.send("c1", "one");
  here.client.send("c1", "two");

  await here.refuse(here.asked("send")[0], "unavailable", true);
  await here.pass(1500);

  const sends = here.asked("send");
  assert.deepEqual(
    sends.map((f) => f.body),
    ["one", "one"],
  );
  assert.equal(sends[0].ref, sends[1].ref);
});

test("a permanently rejected message shows the reason and does not block the next one", async () => {
  const here = await client();
  here.client.send("c1", "one");
  here.client.send("c1", "two");

  await here.refuse(here.asked("send")[0], "forbidden", false);

  assert.equal(here.store.state.outbox[0].status, "failed");
  assert.match(here.store.state.outbox[0].error, /permission to send/);
  assert.deepEqual(
    here.asked("send").map((f) => f.body),
    ["one", "two"],
  );
});

test("a rejection with a user-facing reason shows it", async () => {
  const here = await client();
  for (const text of ["one", "two"]) here.client.send("c1", text);

  await here.refuse(here.asked("send")[0], "forbidden", false, "body: no such words");
  await here.refuse(here.asked("send")[1], "forbidden", false, "chat: you may not send messages here");

  const [host, muted] = here.store.state.outbox.map((waiting) => waiting.error);
  assert.equal(host, "No such words.");
  assert.match(muted, /muted/);
});

test("after a break the cursor is resumed and the unanswered message goes again, same ref", async () => {
  const here = await client();
  here.socket.say(messageEvent(1, message(1)));
  here.client.send("c1", "mine");
  const [first] = here.asked("send");

  here.socket.end(1006);
  await here.pass(600);
  await here.open(1);

  assert.deepEqual(here.asked("hello")[0].cursor, { epoch: EPOCH, seq: 1 });
  assert.equal(here.asked("send")[0].ref, first.ref);
  assert.equal(here.asked("chats").length, 0);
});

test("hello after a break names the chats whose messages are not stored", async () => {
  const here = await client();
  here.client.send("c1", "mine");
  await here.ack(here.asked("send")[0], 7);
  assert.equal("unstored" in here.asked("hello")[0], false);

  here.socket.end(1006);
  await here.pass(600);
  await here.open(1);

  assert.deepEqual(here.asked("hello")[0].unstored, { c1: 7 });
});

test("hello of a member of very many large chats is one that the server accepts", async () => {
  const here = await client();
  const large = Array.from({ length: 1001 }, (_, number) => [`g${number}`, 1]);
  here.store.state.large = new Map(large);

  here.socket.end(1006);
  await here.pass(600);
  await here.open(1);

  assert.equal(Object.keys(here.asked("hello")[0].large).length, 1000);
});

test("a message without an answer is not lost and not doubled", async () => {
  const here = await client();
  here.client.send("c1", "mine");
  const [first] = here.asked("send");

  await here.pass(10_000);
  await here.answer(here.asked("sync")[0], { type: "page", events: [], more: false });
  await here.pass(1500);

  assert.deepEqual(
    here.asked("send").map((f) => f.ref),
    [first.ref, first.ref],
  );
});

test("the first read mark is sent at once, later ones are coalesced", async () => {
  const here = await client(messages(1, 9));

  for (let seq = 1; seq <= 9; seq += 1) here.client.seen("c1", seq);

  assert.equal(unreadOf(here.chat()), 0);
  assert.deepEqual(
    here.asked("mark").map((f) => f.read),
    [1],
  );
  await here.pass(400);
  assert.deepEqual(
    here.asked("mark").map((f) => f.read),
    [1, 9],
  );
});

test("nothing is read in a window that nobody looks at", async () => {
  const here = await client(messages(1, 3));
  here.client.setAttention({ isVisible: true, isFocused: false });

  here.client.seen("c1", 3);
  await here.pass(1000);

  assert.deepEqual(here.asked("mark"), []);
  assert.equal(unreadOf(here.chat()), 3);
});

test("read marks made offline are sent on the next connection", async () => {
  const here = await client(messages(1, 3));
  here.socket.end(1006);
  await here.settle();

  here.client.seen("c1", 3);
  await here.pass(600);
  await here.open();

  assert.deepEqual(
    here.asked("mark").map((f) => f.read),
    [3],
  );
});

test("a read mark is retried after a temporary error", async () => {
  const here = await client(messages(1, 3));
  here.client.seen("c1", 3);
  await here.pass(500);
  const refused = here.asked("mark");

  for (const mark of refused) await here.refuse(mark, "unavailable", true);
  await here.pass(1500);

  const [again, ...more] = here.asked("mark").slice(refused.length);
  assert.deepEqual([again.read, more], [3, []]);
  await here.answer(again, { type: "ok" });
  await here.pass(10_000);
  assert.equal(here.asked("mark").length, refused.length + 1);
});

test("typing signals are sent every three seconds at most, and the end once", async () => {
  const here = await client();

  for (let i = 0; i < 40; i += 1) {
    here.client.typing("c1");
    await here.pass(100);
  }
  assert.deepEqual(
    here.asked("typing").map((f) => f.on),
    [true, true],
  );

  await here.pass(5000);
  assert.deepEqual(
    here.asked("typing").map((f) => f.on),
    [true, true, false],
  );
});

test("sending ends the writing", async () => {
  const here = await client();
  here.client.typing("c1");

  here.client.send("c1", "done");

  assert.deepEqual(
    here.asked("typing").map((f) => f.on),
    [true, false],
  );
});

test("a change of a message is asked for under a ref, and sent again under the same", async () => {
  const here = await client(messages(1, 2, { sender: "alice" }));
  here.client.edit("c1", 2, " better\n");
  const [first] = here.asked("edit");
  assert.deepEqual([first.chat, first.seq, first.body], ["c1", 2, " better"]);

  here.socket.end(1006);
  await here.pass(600);
  await here.open();

  assert.equal(here.asked("edit")[0].ref, first.ref);
  await here.ack(here.asked("edit")[0], 3);
  here.client.react("c1", 1, "👍");
  await here.ack(here.asked("react")[0], 4);
  here.client.remove("c1", 1, false);
  assert.equal(here.asked("react")[0].emoji, "👍");
  assert.deepEqual([here.asked("delete")[0].seq, here.asked("delete")[0].for], [1, "me"]);
  await here.ack(here.asked("delete")[0], 1);
  assert.ok(here.chat().messages[0].deleted);
});

test("a rejected change has a text for its kind", async () => {
  const here = await client(messages(1, 1));
  here.client.react("c1", 1, "👍");
  here.client.edit("c1", 1, "longer");
  here.client.edit("c1", 1, "shorter");
  here.client.remove("c1", 1, true);

  await here.refuse(here.asked("react")[0], "too_large", false);
  await here.refuse(here.asked("edit")[0], "too_large", false);
  await here.refuse(here.asked("edit")[1], "conflict", false, "seq: the message is deleted");
  await here.refuse(here.asked("delete")[0], "bad_request", false, "seq: is not a message");

  assert.deepEqual(
    here.store.state.outbox.map((waiting) => waiting.error),
    [
      "This message has too many reactions.",
      "The text is too long.",
      "This message was deleted.",
      "Request failed: is not a message.",
    ],
  );
});

test("a rejected change shows the reason and can be dismissed", async () => {
  const here = await client(messages(1, 1));
  here.client.remove("c1", 1, true);

  await here.refuse(here.asked("delete")[0], "forbidden", false);

  const [entry] = here.store.state.outbox;
  assert.equal(entry.error, "You don't have permission to change this message.");
  here.client.discard(entry.ref);
  assert.deepEqual(here.store.state.outbox, []);
});

test("an event that was skipped is asked for, and what came early is kept", async () => {
  const here = await client();
  here.socket.say(messageEvent(2, message(2)));
  await here.settle();
  assert.deepEqual(here.asked("sync")[0].cursor, { epoch: EPOCH, seq: 0 });

  const events = [messageEvent(1, message(1))];
  await here.answer(here.asked("sync")[0], { type: "page", events, more: false });

  assert.equal(here.store.state.cursor.seq, 2);
  assert.deepEqual(
    here.chat().messages.map((m) => m.seq),
    [1, 2],
  );
});

test("events that were skipped are asked for again when the server could not tell them", async () => {
  const here = await client();
  here.socket.say(messageEvent(2, message(2)));
  await here.settle();

  await here.refuse(here.asked("sync")[0], "unavailable", true);
  await here.pass(1500);
  const events = [messageEvent(1, message(1))];
  await here.answer(here.asked("sync")[1], { type: "page", events, more: false });

  assert.equal(here.store.state.cursor.seq, 2);
  assert.equal(here.asked("sync").length, 2);
});

test("a seq of the chat that was skipped is fetched from history", async () => {
  const here = await client(messages(1, 2));
  here.socket.say(messageEvent(1, message(5)));
  await here.settle();
  const request = here.asked("history")[1];
  assert.equal(request.after, 2);

  const found = { type: "page", chat: "c1", messages: messages(3, 5), tier: "hot", more: false };
  await here.answer(request, found);

  assert.deepEqual(
    here.chat().messages.map((m) => m.seq),
    [1, 2, 3, 4, 5],
  );
  assert.equal(here.asked("history").length, 2);
});

test("a snapshot is followed by the list and the open chat, loaded afresh", async () => {
  const here = await client(messages(1, 2));

  here.socket.say({
    type: "too_long",
    cursor: { epoch: EPOCH, seq: 500 },
    chats: [summary({ top: 90, read: 2, last: message(90) })],
  });
  await here.settle();

  assert.equal(here.asked("chats").length, 2);
  const request = here.asked("history").at(-1);
  assert.equal(request.before, undefined);
  assert.ok(request.limit >= 88, `${request.limit} reaches back to where reading stopped`);
});

test("a failed load of history shows an error and is retried", async () => {
  const here = await client();
  here.store.dispatch({
    type: "snapshot",
    frame: { cursor: { epoch: EPOCH, seq: 1 }, chats: [] },
    now: 0,
  });
  here.socket.say({ type: "page", events: [] });
  await here.settle();

  await here.refuse(here.asked("history").at(-1), "unavailable", true);
  assert.match(here.chat().trouble, /load messages/);

  await here.pass(1500);
  assert.equal(here.chat().trouble, null);
  assert.equal(here.chat().loading, "newest");
});

test("a copied window takes a device id of its own", async () => {
  const here = await client();

  here.socket.end(3004);
  await here.pass(600);
  await here.open();

  assert.equal(here.asked("hello")[0].device, "another");
});

test("a blank text is not sent", async () => {
  const here = await client();

  assert.equal(here.client.send("c1", " \n\u0000\t "), false);
  assert.deepEqual(here.store.state.outbox, []);
});
