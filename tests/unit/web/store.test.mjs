// The store: what is shown is what the server's chats and inbox say, whatever order things come in.

import assert from "node:assert/strict";
import { test } from "node:test";

import { unreadOf } from "../../../chatserver/web/state/chats.js";
import { shownText } from "../../../chatserver/web/state/expiry.js";
import { initialState } from "../../../chatserver/web/store.js";
import {
  after,
  chatEvent,
  connected,
  entry,
  event,
  list,
  message,
  messageEvent,
  messages,
  page,
  readEvent,
  reading,
  seqs,
  summary,
  welcome,
} from "./builders.mjs";

const chat = (state, id = "c1") => state.chats.get(id);

test("an event that comes twice is applied once", () => {
  const frame = messageEvent(1, message(1));

  const state = after(reading(), event(frame), event(frame));

  assert.deepEqual(seqs(state), [1]);
  assert.equal(unreadOf(chat(state)), 1);
});

test("what the server counted as unread is taken, and what comes later is added", () => {
  // Of eight entries after the mark, five are reactions.
  const state = after(
    initialState(),
    welcome(),
    list([summary({ top: 10, read: 2, unread: 3, last: message(9) })]),
  );
  assert.equal(unreadOf(chat(state)), 3);

  const later = after(state, event(messageEvent(1, message(11))));
  assert.equal(unreadOf(chat(later)), 4);

  const read = after(later, list([summary({ top: 11, read: 11, last: message(11) })]));
  assert.equal(unreadOf(chat(read)), 0);
});

test("an old event that comes again does not move the cursor back", () => {
  const frames = messages(1, 3).map((each) => event(messageEvent(each.seq, each)));

  const state = after(reading(), ...frames, frames[0], event(messageEvent(4, message(4))));

  assert.equal(state.cursor.seq, 4);
  assert.deepEqual(seqs(state), [1, 2, 3, 4]);
});

test("events out of order are held back", () => {
  const first = after(
    reading(),
    event(messageEvent(3, message(3))),
    event(messageEvent(2, message(2))),
  );
  assert.deepEqual(seqs(first), []);
  assert.equal(first.ahead.length, 2);

  const state = after(first, event(messageEvent(1, message(1))));

  assert.deepEqual(seqs(state), [1, 2, 3]);
  assert.deepEqual(state.cursor, { epoch: "e1", seq: 3 });
  assert.equal(state.ahead.length, 0);
});

test("an event of another epoch does not move the cursor", () => {
  const state = after(reading(), event(messageEvent(1, message(1), "e2")));

  assert.deepEqual(state.cursor, { epoch: "e1", seq: 0 });
  assert.deepEqual(seqs(state), []);
});

test("an event of an unknown kind moves the cursor and nothing else", () => {
  const before = reading();

  const state = after(
    before,
    event({ type: "event", epoch: "e1", seq: 1, kind: "reaction", chat: "c1" }),
  );

  assert.equal(state.cursor.seq, 1);
  assert.equal(state.chats, before.chats);
});

test("a page of the list that is older than an event does not take the message back", () => {
  const late = list([summary({ top: 0 })]);

  const state = after(initialState(), welcome(), event(messageEvent(1, message(1))), late);

  assert.equal(chat(state).top, 1);
  assert.equal(chat(state).last.seq, 1);
  assert.equal(unreadOf(chat(state)), 1);
});

test("an event whose message the list already counted is not counted again", () => {
  const early = list([summary({ top: 1, unread: 1, last: message(1) })]);

  const state = after(initialState(), welcome(), early, event(messageEvent(1, message(1))));

  assert.equal(unreadOf(chat(state)), 1);
});

test("a message of an unknown chat requests the list", () => {
  const state = after(connected(), event(messageEvent(1, message(1, { chat: "new" }))));

  assert.equal(state.needsList, true);
  assert.equal(chat(state, "new").top, 1);
});

test("a chat event puts a new chat into the list", () => {
  const info = { chat: "g-1", kind: "group", members: ["alice", "carol"], name: "Crew" };

  const state = after(connected(), event(chatEvent(1, info)));

  assert.equal(chat(state, "g-1").name, "Crew");
  assert.equal(state.needsList, false);
});

test("ids that are names of the language are only ids", () => {
  const info = { chat: "__proto__", kind: "direct", members: ["alice", "constructor"] };
  const shown = message(1, { chat: "__proto__", sender: "constructor" });

  const state = after(connected(), event(chatEvent(1, info)), event(messageEvent(2, shown)));

  assert.equal(unreadOf(chat(state, "__proto__")), 1);
  assert.equal({}.unread, undefined);
});

test("messages of others count as unread until they are seen", () => {
  const state = after(
    reading(messages(1, 2)),
    event(messageEvent(1, message(3))),
    event(messageEvent(2, message(4))),
  );
  assert.equal(unreadOf(chat(state)), 2);

  assert.equal(unreadOf(chat(after(state, { type: "seen", chat: "c1", seq: 3 }))), 1);
  assert.equal(unreadOf(chat(after(state, { type: "seen", chat: "c1", seq: 4 }))), 0);
});

test("a read mark never moves back", () => {
  const state = after(
    reading(messages(1, 4)),
    { type: "seen", chat: "c1", seq: 4 },
    event(readEvent(1, { user: "alice", read: 2 })),
  );

  assert.equal(chat(state).read, 4);
});

test("reading on another device clears what is unread here", () => {
  const state = after(
    connected(),
    event(messageEvent(1, message(1))),
    event(messageEvent(2, message(2))),
    event(readEvent(3, { user: "alice", read: 2 })),
  );

  assert.equal(unreadOf(chat(state)), 0);
});

test("one's own message of another device is not unread, and what stood before it is read", () => {
  const state = after(
    connected(),
    event(messageEvent(1, message(1))),
    event(messageEvent(2, message(2, { sender: "alice" }))),
  );

  assert.equal(unreadOf(chat(state)), 0);
  assert.equal(chat(state).read, 2);
});

test("an answer of the other side proves that they read what stood before", () => {
  const own = message(1, { sender: "alice" });

  const state = after(reading([own]), event(messageEvent(1, message(2))));

  assert.equal(chat(state).marks.get("bob").read, 2);
});

test("messages that come while nobody looks are divided from what was read", () => {
  const away = after(reading(messages(1, 2)), { type: "watched", isWatched: false });

  const state = after(away, event(messageEvent(1, message(3))), event(messageEvent(2, message(4))));

  assert.equal(chat(state).divider, 2);
});

test("opening a chat with unread messages draws the line where reading stopped", () => {
  const state = after(
    initialState(),
    welcome(),
    list([summary({ top: 9, read: 6, unread: 3, last: message(9) })]),
    { type: "open", chat: "c1" },
  );

  assert.equal(chat(state).divider, 6);
  assert.equal(chat(after(state, { type: "close" })).divider, null);
});

test("a seq that was skipped is shown as a hole until a page fills it", () => {
  const gap = after(reading(messages(1, 3)), event(messageEvent(1, message(7))));
  assert.deepEqual(chat(gap).hole, { after: 3, before: 7 });
  assert.deepEqual(seqs(gap), [1, 2, 3, 7]);

  const state = after(gap, { type: "page", chat: "c1", want: "hole", frame: page(messages(4, 7)) });

  assert.equal(chat(state).hole, null);
  assert.deepEqual(seqs(state), [1, 2, 3, 4, 5, 6, 7]);
});

test("a hole that the server cannot fill is not asked for again", () => {
  const gap = after(reading(messages(1, 3)), event(messageEvent(1, message(7))));

  const state = after(gap, { type: "page", chat: "c1", want: "hole", frame: page([]) });

  assert.equal(chat(state).hole, null);
});

test("older pages go before what is loaded, without repeats", () => {
  const start = after(reading(messages(60, 109)), { type: "loading", chat: "c1", want: "older" });

  const older = page(messages(10, 60), { more: true });
  const state = after(start, { type: "page", chat: "c1", want: "older", before: 60, frame: older });

  assert.deepEqual(
    seqs(state),
    Array.from({ length: 100 }, (_, i) => i + 10),
  );
  assert.equal(chat(state).older, "more");
  assert.equal(chat(state).loading, null);
});

test("an older page that comes after the window was cut is not joined to it", () => {
  const start = after(reading(messages(10, 400)), { type: "trim", chat: "c1" });
  assert.equal(seqs(start)[0], 201);

  const late = { type: "page", chat: "c1", want: "older", before: 10, frame: page(messages(1, 9)) };
  const state = after(start, late);

  assert.equal(seqs(state)[0], 201);
  assert.equal(chat(state).older, "more");
});

test("a message that came while the newest page was on its way is fetched", () => {
  const opened = after(connected(), { type: "open", chat: "c1" });
  const told = after(opened, event(messageEvent(1, message(1))));

  const state = after(told, { type: "page", chat: "c1", want: "newest", frame: page([]) });

  assert.deepEqual(chat(state).hole, { after: 0, before: 2 });
});

test("the first message of a chat ends the way back", () => {
  const state = after(reading(), {
    type: "page",
    chat: "c1",
    want: "newest",
    frame: page(messages(1, 5), { more: true }),
  });

  assert.equal(chat(state).older, "none");
});

test("a newest page that does not touch what is loaded replaces it", () => {
  const state = after(reading(messages(1, 5)), {
    type: "page",
    chat: "c1",
    want: "newest",
    frame: page(messages(50, 60), { more: true }),
  });

  assert.equal(seqs(state)[0], 50);
  assert.equal(chat(state).hole, null);
});

test("a snapshot drops what was loaded and keeps the marks", () => {
  const before = after(reading(messages(1, 5)), { type: "seen", chat: "c1", seq: 5 });
  const snapshot = {
    cursor: { epoch: "e1", seq: 900 },
    chats: [summary({ top: 40, read: 2, unread: 38, last: message(40) })],
  };

  const state = after(before, { type: "snapshot", frame: snapshot, now: 0 });

  assert.deepEqual(state.cursor, { epoch: "e1", seq: 900 });
  assert.equal(chat(state).older, "unknown");
  assert.equal(chat(state).read, 5);
  assert.equal(unreadOf(chat(state)), 35);
});

test("a snapshot of a new epoch takes marks back that were beyond what is left", () => {
  const before = after(
    reading(messages(1, 5)),
    { type: "seen", chat: "c1", seq: 5 },
    event(readEvent(1, { user: "bob", read: 5 })),
  );
  const snapshot = {
    cursor: { epoch: "e2", seq: 0 },
    chats: [summary({ top: 4, read: 2, unread: 2, peer: { user: "bob", read: 3 } })],
  };

  const state = after(before, { type: "snapshot", frame: snapshot, now: 0 });

  assert.equal(chat(state).read, 2);
  assert.equal(chat(state).marks.get("bob").read, 3);
  assert.equal(unreadOf(chat(state)), 2);
});

test("an open chat that the snapshot does not list stays open and is loaded again", () => {
  const snapshot = { cursor: { epoch: "e1", seq: 9 }, chats: [] };

  const state = after(reading(messages(1, 5)), { type: "snapshot", frame: snapshot, now: 0 });

  assert.equal(state.open, "c1");
  assert.equal(chat(state).older, "unknown");
});

test("the chats that are left keep only their newest messages", () => {
  const state = after(reading(messages(1, 300)), { type: "close" });

  assert.equal(seqs(state).length, 60);
  assert.equal(seqs(state).at(-1), 300);
  assert.equal(chat(state).older, "more");
});

test("a sign of writing goes when it is old, or when the message is there", () => {
  const signal = { kind: "typing", chat: "c1", from: "bob", on: true };
  const state = after(reading(), { type: "signal", frame: signal, now: 1000 });
  assert.deepEqual([...state.typing.get("c1").keys()], ["bob"]);

  assert.equal(after(state, { type: "tick", now: 1500 }), state);
  assert.equal(after(state, { type: "tick", now: 9000 }).typing.size, 0);
  assert.equal(after(state, event(messageEvent(1, message(1)))).typing.size, 0);
});

test("a page tells a new window what is stored and who has read what", () => {
  const found = messages(1, 5, { sender: "alice" });
  const marks = [
    { user: "alice", read: 4 },
    { user: "bob", read: 2, received: 3 },
  ];
  const frame = page(found, { tier: "warm", stored: 3, marks });

  const state = after(reading(), { type: "page", chat: "c1", want: "newest", frame });

  assert.equal(chat(state).stored, 3);
  assert.equal(chat(state).read, 4);
  assert.deepEqual(chat(state).marks.get("bob"), { read: 2, received: 3 });
});

test("a message is hidden the moment it ends, in the chat and in the list", () => {
  const ends = 1_700_000_300;
  const found = [message(1), message(2, { expires_at: ends })];
  const before = after(reading(found), { type: "tick", now: ends * 1000 - 1 });
  assert.deepEqual(chat(before).messages, found);

  const state = after(before, { type: "tick", now: ends * 1000 });

  const tombstone = { ...found[1], body: "", deleted: true };
  assert.deepEqual(chat(state).messages, [found[0], tombstone]);
  assert.deepEqual(chat(state).last, tombstone);
  assert.equal(shownText(tombstone), "Expired message");
  assert.equal(after(state, { type: "tick", now: ends * 1000 + 1000 }), state);
});

test("a chat without a message keeps the place the server gave it", () => {
  const summaries = [
    summary({ chat: "a", top: 1, last: message(1, { ts: 5_000_000 }) }),
    summary({ chat: "b" }),
    summary({ chat: "c", top: 1, last: message(1, { ts: 1_000_000 }) }),
  ];

  const state = after(initialState(), welcome(), list(summaries));

  const order = [...state.chats.values()].sort((x, y) => y.activity - x.activity).map((c) => c.id);
  assert.deepEqual(order, ["a", "b", "c"]);
});

test("what nobody knows of changes nothing", () => {
  const before = connected();

  for (const action of [
    { type: "seen", chat: "nowhere", seq: 4 },
    { type: "retry", ref: "nothing", now: 0 },
    { type: "ack", frame: { ref: "nothing", seq: 1, ts: 1, durability: "hot" } },
    { type: "tick", now: 1 },
  ]) {
    assert.deepEqual(after(before, action), before);
  }
  assert.throws(() => after(before, { type: "no-such-thing" }), /no such action/);
});

test("a draft is kept per chat and goes when it is empty", () => {
  const state = after(connected(), { type: "draft", chat: "c1", text: "half a th" });
  assert.equal(state.drafts.get("c1"), "half a th");

  assert.equal(after(state, { type: "draft", chat: "c1", text: "  " }).drafts.size, 0);
});

test("what another life of the tab left unsent is sent, and what it left unstored is offered again", () => {
  const left = {
    outbox: [entry("a", { status: "sending", tried: true })],
    unstored: [entry("b", { seq: 4 })],
  };

  const state = after(connected(), {
    type: "restore",
    ...left,
    drafts: new Map(),
    facts: new Map(),
    now: 1_700_000_200_000,
  });

  assert.deepEqual(
    state.outbox.map((e) => [e.ref, e.status]),
    [
      ["b", "queued"],
      ["a", "queued"],
    ],
  );
  assert.deepEqual(state.unstored, []); // in which epoch their places were is not known
});

test("marks that no summary tells again outlive a reload", () => {
  const facts = new Map([
    ["c1", { stored: 4, marks: new Map([["carol", { read: 3, received: 3 }]]) }],
  ]);
  const kept = { outbox: [], unstored: [], drafts: new Map(), facts };
  const group = summary({ kind: "group", members: ["alice", "bob", "carol"], top: 4, read: 4 });

  const state = after(
    initialState(),
    welcome(),
    { type: "restore", ...kept, now: 0 },
    list([group]),
  );

  assert.equal(chat(state).stored, 4);
  assert.equal(chat(state).marks.get("carol").read, 3);
});
