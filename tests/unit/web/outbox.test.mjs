// The outbox: what was written is sent once, in order, and never silently lost.

import assert from "node:assert/strict";
import { test } from "node:test";

import { REF_LIFE_MS, nextRetry, requeue, sendable } from "../../../chatserver/web/state/outbox.js";
import {
  after,
  connected,
  entry,
  event,
  message,
  messageEvent,
  messages,
  page,
  reading,
  seqs,
} from "./builders.mjs";

const NOW = 1_700_000_200_000;
const compose = (ref, change) => ({ type: "compose", entry: entry(ref, change) });
const ack = (ref, seq, change = {}) => ({
  type: "ack",
  frame: {
    ref,
    seq,
    ts: seq * 1_000_000,
    mid: `m${seq}`,
    dup: false,
    durability: "hot",
    ...change,
  },
});
const own = (seq, ref) => message(seq, { sender: "alice", ref });
const refs = (state) => state.outbox.map((each) => each.ref);

test("one message of a chat is in flight at a time, chats do not wait for each other", () => {
  const outbox = [entry("a"), entry("b"), entry("c", { chat: "c2" })];
  assert.deepEqual(
    sendable(outbox, NOW).map((e) => e.ref),
    ["a", "c"],
  );

  outbox[0] = { ...outbox[0], status: "sending" };
  assert.deepEqual(
    sendable(outbox, NOW).map((e) => e.ref),
    ["c"],
  );

  outbox[0] = { ...outbox[0], status: "acked" };
  assert.deepEqual(
    sendable(outbox, NOW).map((e) => e.ref),
    ["b", "c"],
  );
});

test("a message that waits for its retry keeps what was written later behind it", () => {
  const outbox = [entry("a", { retryAt: NOW + 500 }), entry("b")];

  assert.deepEqual(sendable(outbox, NOW), []);
  assert.equal(nextRetry(outbox), NOW + 500);
  assert.deepEqual(
    sendable(outbox, NOW + 500).map((e) => e.ref),
    ["a"],
  );
});

test("a message that failed for good does not hold up the others", () => {
  const outbox = [entry("a", { status: "failed" }), entry("b")];

  assert.deepEqual(
    sendable(outbox, NOW).map((e) => e.ref),
    ["b"],
  );
});

test("ack and event bring a message to its place, whichever comes first", () => {
  const start = after(reading(messages(1, 2)), compose("x"));
  const event3 = event(messageEvent(1, own(3, "x")));

  const ackFirst = after(start, ack("x", 3));
  assert.equal(ackFirst.outbox[0].status, "acked");
  assert.deepEqual(seqs(ackFirst), [1, 2]);
  for (const state of [after(ackFirst, event3), after(start, event3, ack("x", 3))]) {
    assert.deepEqual(seqs(state), [1, 2, 3]);
    assert.deepEqual(state.outbox, []);
  }
});

test("an acked message does not open a hole while the message before it is on its way", () => {
  const start = after(reading(messages(1, 2)), compose("x"), ack("x", 4));

  const state = after(
    start,
    event(messageEvent(1, message(3))),
    event(messageEvent(2, own(4, "x"))),
  );

  assert.equal(state.chats.get("c1").hole, null);
  assert.deepEqual(seqs(state), [1, 2, 3, 4]);
});

test("a repeat's ack whose event went by fetches the message's place", () => {
  const start = after(reading([...messages(1, 2), ...messages(4, 5)]), compose("x"));

  const state = after(start, ack("x", 3, { dup: true }));

  assert.deepEqual(state.chats.get("c1").hole, { after: 2, before: 4 });
  const filled = { type: "page", chat: "c1", want: "hole", frame: page([own(3, "x"), message(4)]) };
  assert.deepEqual(after(state, filled).outbox, []);
});

test("an acked message of a chat that is not loaded leaves the outbox", () => {
  const state = after(connected(), compose("x"), ack("x", 1));

  assert.deepEqual(state.outbox, []);
  assert.deepEqual(
    state.unstored.map((e) => e.ref),
    ["x"],
  );
});

test("a page that holds a message takes it out of the outbox", () => {
  const start = after(reading(), compose("x", { status: "sending" }));

  const state = after(start, {
    type: "page",
    chat: "c1",
    want: "newest",
    frame: page([own(1, "x")]),
  });

  assert.deepEqual(state.outbox, []);
});

test("another user's message with the same ref leaves the outbox alone", () => {
  const state = after(reading(), compose("x"), event(messageEvent(1, message(1, { ref: "x" }))));

  assert.deepEqual(refs(state), ["x"]);
});

test("what was not answered is sent again after the connection was lost, under the same ref", () => {
  const start = after(reading(), compose("x", { status: "sending", tried: true }));

  const state = after(start, { type: "disconnected", now: NOW });

  assert.deepEqual(
    state.outbox.map((e) => [e.ref, e.status]),
    [["x", "queued"]],
  );
});

test("a try older than the server's memory of refs is not repeated by itself", () => {
  const old = entry("x", { status: "sending", tried: true, at: NOW - REF_LIFE_MS - 1 });
  const untried = entry("y", { at: NOW - REF_LIFE_MS - 1 });
  const edit = { ...old, ref: "e", change: { kind: "edit", target: 1 } };

  const [first, second, change] = requeue([old, untried, edit], NOW);

  assert.equal(first.status, "failed");
  assert.match(first.error, /may appear twice/);
  assert.equal(second.status, "queued");
  assert.equal(change.error, "Couldn't confirm this change. Try again.");
});

test("an acked message is kept until it is stored", () => {
  const start = after(connected(), compose("x"), ack("x", 4), compose("y"), ack("y", 5));

  const state = after(start, { type: "stored", frame: { chat: "c1", upto: 4 } });

  assert.deepEqual(
    state.unstored.map((e) => e.ref),
    ["y"],
  );
  assert.equal(state.chats.get("c1").stored, 4);
});

test("a hot tier that was rebuilt is offered again what it acked and did not store, first", () => {
  const start = after(connected(), compose("x"), ack("x", 4), compose("y"));
  const reset = { cursor: { epoch: "e2", seq: 0 }, chats: [] };

  const state = after(start, { type: "snapshot", frame: reset, now: NOW });

  assert.deepEqual(refs(state), ["x", "y"]);
  assert.equal(state.outbox[0].status, "queued");
});

test("places of an epoch that is over are forgotten until the messages are acked anew", () => {
  const start = after(connected(), compose("x"), ack("x", 4));
  const reset = { cursor: { epoch: "e2", seq: 0 }, chats: [] };
  const stored = (upto) => ({ type: "stored", frame: { chat: "c1", upto } });

  const again = after(start, { type: "snapshot", frame: reset, now: NOW });
  const acked = after(again, ack("x", 9), stored(4));

  assert.deepEqual(again.unstored, []);
  assert.deepEqual(
    acked.unstored.map((e) => [e.ref, e.seq]),
    [["x", 9]],
  );
});

test("a snapshot of the same life offers nothing again", () => {
  const start = after(connected(), compose("x"), ack("x", 4));
  const tooLong = { cursor: { epoch: "e1", seq: 90 }, chats: [] };

  assert.deepEqual(after(start, { type: "snapshot", frame: tooLong, now: NOW }).outbox, []);
});

test("a rejected message stays with a reason, and can be retried or deleted", () => {
  const failed = after(reading(), compose("x"), { type: "failed", ref: "x", text: "No." });
  assert.equal(failed.outbox[0].error, "No.");

  const again = after(failed, { type: "retry", ref: "x", now: NOW });
  assert.equal(again.outbox[0].status, "queued");
  assert.equal(again.outbox[0].error, null);
  assert.deepEqual(after(failed, { type: "discard", ref: "x" }).outbox, []);
});

test("writing answers the unread line", () => {
  const away = after(reading(messages(1, 2)), { type: "watched", isWatched: false });
  const start = after(away, event(messageEvent(1, message(3))));
  assert.equal(start.chats.get("c1").divider, 2);

  assert.equal(after(start, compose("x")).chats.get("c1").divider, null);
});
