// The rows of a chat: groups, days, the unread line, the marks of one's own messages.

import assert from "node:assert/strict";
import { test } from "node:test";

import { REF_LIFE_MS, requeue } from "../../../chatserver/web/state/outbox.js";
import { isSameRow, timelineRows } from "../../../chatserver/web/timeline_rows.js";
import {
  after,
  entry,
  event,
  message,
  messageEvent,
  messages,
  readEvent,
  reading,
} from "./builders.mjs";

const rowsOf = (state, now = Date.now()) => timelineRows(state, state.chats.get("c1"), now);
const shown = (state) => rowsOf(state).filter((row) => row.type === "message");
const types = (state) => rowsOf(state).map((row) => row.type);
const minutes = (count) => 1_700_000_000_000_000 + count * 60_000_000;

test("messages of one sender within five minutes are a group", () => {
  const found = [
    message(1, { ts: minutes(0) }),
    message(2, { ts: minutes(4) }),
    message(3, { ts: minutes(10) }),
    message(4, { ts: minutes(11), sender: "alice" }),
  ];

  const rows = shown(reading(found));

  assert.deepEqual(
    rows.map((row) => [row.isFirst, row.isLast]),
    [
      [true, false],
      [false, true],
      [true, true],
      [true, true],
    ],
  );
});

test("each day begins with its name", () => {
  const found = [message(1, { ts: minutes(0) }), message(2, { ts: minutes(3 * 24 * 60) })];

  const now = minutes(3 * 24 * 60 + 5) / 1000;
  const rows = rowsOf(reading(found), now);

  assert.deepEqual(
    rows.map((row) => row.type),
    ["beginning", "day", "message", "day", "message"],
  );
  assert.equal(rows[3].label, "Today");
});

test("the unread line stands before the first unread message of somebody else", () => {
  const away = after(reading(messages(1, 2)), { type: "watched", isWatched: false });
  const state = after(
    away,
    event(messageEvent(1, message(3, { sender: "alice" }))),
    event(messageEvent(2, message(4))),
  );

  assert.deepEqual(types(state), [
    "beginning",
    "day",
    "message",
    "message",
    "message",
    "unread",
    "message",
  ]);
});

test("a message keeps its key from being written to being read", () => {
  const written = after(reading(), { type: "compose", entry: entry("x") });
  const acked = after(written, {
    type: "ack",
    frame: { ref: "x", seq: 1, ts: minutes(1), durability: "hot" },
  });
  const there = after(
    acked,
    event(messageEvent(1, message(1, { sender: "alice", ref: "x", ts: minutes(1) }))),
  );
  const stored = after(there, { type: "stored", frame: { chat: "c1", upto: 1 } });
  const read = after(stored, event(readEvent(2, { user: "bob", read: 1 })));

  const states = [written, acked, there, stored, read];
  assert.deepEqual(
    states.map((state) => shown(state)[0].mark),
    ["sending", "sent", "sent", "stored", "read"],
  );
  assert.equal(new Set(states.map((state) => shown(state)[0].key)).size, 1);
});

test("what waits to be sent stands after what is there, in the order it was written", () => {
  const state = after(
    reading(messages(1, 2)),
    { type: "compose", entry: entry("x") },
    { type: "compose", entry: entry("y", { status: "failed", error: "No." }) },
  );

  assert.deepEqual(
    shown(state).map((row) => row.ref),
    ["r1", "r2", "x", "y"],
  );
  assert.equal(shown(state)[3].error, "Not sent. No.");
});

test("an unconfirmed message or change is not said to have failed", () => {
  const now = Date.now();
  const tried = { status: "sending", tried: true, at: now - REF_LIFE_MS - 1 };
  const edit = entry("e", { ...tried, change: { kind: "edit", target: 1 } });
  const start = reading(messages(1, 1));
  const state = { ...start, outbox: requeue([entry("x", tried), edit], now) };

  const errors = shown(state).map((row) => row.error);

  assert.deepEqual(errors, [
    "Couldn't confirm this change. Try again.",
    "Couldn't confirm delivery. If you try again, the message may appear twice.",
  ]);
});

test("a reply shows what it answers, if that is loaded", () => {
  const found = [message(1), message(2, { reply_to: 1 }), message(3, { reply_to: 77 })];

  const rows = shown(reading(found));

  assert.deepEqual([rows[1].quoteFrom, rows[1].quoteText], ["bob", "text 1"]);
  assert.deepEqual([rows[2].quoteFrom, rows[2].quoteText], [null, "An earlier message"]);
});

test("one row changes when one message changes", () => {
  const start = reading(messages(1, 5, { sender: "alice" }));
  const next = after(start, event(readEvent(1, { user: "bob", read: 2 })));

  const [before, now] = [rowsOf(start, 0), rowsOf(next, 0)];

  const changed = now.filter((row, index) => !isSameRow(row, before[index]));
  assert.deepEqual(
    changed.map((row) => row.seq),
    [1, 2],
  );
});

test("keys differ even where a server repeats a ref", () => {
  const rows = shown(reading([message(1, { ref: "same" }), message(2, { ref: "same" })]));

  assert.equal(new Set(rows.map((row) => row.key)).size, 2);
});

test("files of a message are drawn beside its text, and go with it", () => {
  const file = { id: "f1", name: "a.png", type: "image/png", size: 3 };
  const gone = { body: "", deleted: true };
  const found = [
    message(1, { body: "", attachments: [file] }),
    message(2, { body: "look", attachments: [file] }),
    message(3, { ...gone, attachments: [file] }),
  ];

  const rows = shown(reading(found));

  const files = JSON.stringify([file]);
  assert.deepEqual(
    rows.map((row) => [row.body, row.files]),
    [
      ["", files],
      ["look", files],
      ["This message was deleted", ""],
    ],
  );
});

test("a pin is a line of its own, an unpin is none", () => {
  const entries = [
    message(1),
    message(2, { kind: "pin", target: 1, body: "" }),
    message(3, { kind: "unpin", target: 1, body: "" }),
    message(4, { kind: "pin", target: 1, body: "", sender: "alice" }),
  ];

  const rows = rowsOf(reading(entries)).filter((row) => row.type === "system");

  assert.deepEqual(
    rows.map((row) => [row.seq, row.text]),
    [
      [2, "bob pinned a message"],
      [4, "You pinned a message"],
    ],
  );
});
