// A conversation without components: rows, mentions and the message window.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { completeMention, findMention, rankCandidates } = await load(
  "conversation/composer/mention_completion.ts",
);
const { RowBuilder } = await load("conversation/model/rows.ts");
const { ENTRIES_MAX, MessageWindow } = await load("conversation/model/message_window.ts");

const NOON_MS = new Date(2026, 4, 20, 12).getTime();

function message(seq, changes = {}) {
  const { atMs = NOON_MS + seq * 1000, ...others } = changes;
  return {
    seq,
    ts: atMs * 1000,
    chat: "g-1",
    mid: `m${seq}`,
    sender: "ben",
    ref: `ref${seq}`,
    kind: "text",
    body: `text ${seq}`,
    ...others,
  };
}

// mentions

test("the mention at the caret", () => {
  assert.deepEqual(findMention("hi @be", 6), { start: 3, query: "be" });
  assert.deepEqual(findMention("@", 1), { start: 0, query: "" });
  for (const value of ["a@be", "hi @be ", "@be.", "@@be"]) {
    assert.equal(findMention(value, value.length), null, value);
  }
});

test("candidates that start with the query come first", () => {
  const candidates = [
    { user: "zora", name: "Zora Adams" },
    { user: "adam", name: "Adam" },
    { user: "nadia", name: "Nadia" },
  ];
  const users = rankCandidates(candidates, "ad").map(({ user }) => user);
  assert.deepEqual(users, ["adam", "zora", "nadia"]);
  assert.equal(rankCandidates(candidates, "x").length, 0);
  assert.equal(rankCandidates(candidates, "", 2).length, 2);
});

test("a completed mention is followed by one space", () => {
  const mention = { start: 3, query: "be" };
  assert.deepEqual(completeMention("hi @be", 6, mention, "ben"), { text: "hi @ben ", caret: 8 });
  assert.deepEqual(completeMention("hi @be ok", 6, mention, "ben"), {
    text: "hi @ben ok",
    caret: 8,
  });
});

// rows

const CONTEXT = { me: "ann", marks: {}, unreadAfter: null, pending: [], failed: [] };

function build(entries, context = {}, builder = new RowBuilder()) {
  return builder.build(entries, true, { ...CONTEXT, ...context });
}

test("a series ends at another sender or day, after five minutes, and at notes", () => {
  const rows = build([
    message(1),
    message(2),
    message(3, { sender: "cy" }),
    message(4, { sender: "cy", atMs: NOON_MS + 10 * 60_000 }),
    message(5, { sender: "cy", kind: "member", user: "cy", role: "member" }),
    message(6, { sender: "cy", atMs: NOON_MS + 86_400_000 }),
  ]);
  assert.deepEqual(
    rows.map(({ isFirst, isLast }) => [isFirst, isLast]),
    [
      [true, false],
      [false, true],
      [true, true],
      [true, true],
      [true, true],
      [true, true],
    ],
  );
  const days = rows.map(({ dayMs }) => dayMs !== null);
  assert.deepEqual(days, [true, false, false, false, false, true]);
  assert.ok(rows[4].isSystem);
});

test("the divider is above the first unread message from someone else", () => {
  const entries = [message(1), message(2, { sender: "ann" }), message(3), message(4)];
  const rows = build(entries, { unreadAfter: 1 });
  assert.deepEqual(
    rows.map(({ isUnreadStart }) => isUnreadStart),
    [false, false, true, false],
  );
});

test("the status of own messages follows the others' markers", () => {
  const entries = [1, 2, 3].map((seq) => message(seq, { sender: "ann" }));
  const rows = build(entries, { marks: { ben: [1, 2], ann: [3, 3] } });
  assert.deepEqual(
    rows.map(({ status }) => status),
    ["read", "received", "sent"],
  );
});

test("a row changes with each member who has read its message", () => {
  const builder = new RowBuilder();
  const entries = [1, 2, 3].map((seq) => message(seq, { sender: seq === 2 ? "ben" : "ann" }));
  const before = build(entries, { marks: { ben: [1, 3], cy: [0, 3], ann: [3, 3] } }, builder);
  const after = build(entries, { marks: { ben: [1, 3], cy: [3, 3], ann: [3, 3] } }, builder);
  assert.deepEqual(
    before.map(({ readers }) => readers),
    [1, 0, 0],
  );
  assert.deepEqual(
    after.map(({ readers }) => readers),
    [2, 0, 1],
  );
  assert.deepEqual(
    after.map((row, index) => row === before[index]),
    [false, true, false],
  );
});

test("a message has the same key from sending to reading", () => {
  const builder = new RowBuilder();
  const send = { ref: "new", chat: "g-1", stage: "queued", fields: { type: "send", body: "hi" } };
  const stored = [message(1, { sender: "ann", ref: "new" })];
  const states = [
    build([], { pending: [send] }, builder),
    build(stored, { pending: [{ ...send, stage: "acked" }] }, builder),
    build(stored, {}, builder),
    build(stored, { marks: { ben: [0, 1] } }, builder),
    build(stored, { marks: { ben: [1, 1] } }, builder),
  ];
  const statuses = ["pending", "sent", "sent", "received", "read"];
  assert.deepEqual(
    states.map(([{ status }]) => status),
    statuses,
  );
  assert.deepEqual(new Set(states.map(([{ key }]) => key)), new Set(["r:new"]));
});

test("unsent messages come last, without duplicates", () => {
  const send = { ref: "new", chat: "g-1", stage: "queued", fields: { type: "send", body: "hi" } };
  const stored = { ...send, ref: "ref1" };
  const error = new Error("refused");
  const failed = { ref: "bad", body: "no", replyTo: null, files: [], tsMs: 1, error };
  const entries = [message(1, { sender: "ann" })];
  const rows = build(entries, { pending: [stored, send], failed: [failed] });
  assert.deepEqual(
    rows.map(({ key, status }) => [key, status]),
    [
      ["r:ref1", "sent"],
      ["r:bad", "failed"],
      ["r:new", "pending"],
    ],
  );
  const notLive = new RowBuilder().build(entries, false, { ...CONTEXT, pending: [send] });
  assert.equal(notLive.length, 1);
});

test("pending changes are shown at once", () => {
  const change = (fields) => ({ ref: "x", chat: "g-1", stage: "inFlight", fields });
  const entries = [message(1), message(2), message(3, { reactions: { ben: "👍" } })];
  const rows = build(entries, {
    pending: [
      change({ type: "edit", seq: 1, body: "new" }),
      change({ type: "delete", seq: 2, for: "all" }),
      change({ type: "react", seq: 3, emoji: "🎉" }),
    ],
  });
  assert.equal(rows[0].message.body, "new");
  assert.equal(rows[1].message.deleted, true);
  assert.deepEqual(rows[2].message.reactions, { ben: "👍", ann: "🎉" });
  assert.ok(rows.every(({ isChanging }) => isChanging));
});

test("an acked change is shown until its event arrives, and not after a later one", () => {
  const acked = { ref: "x", chat: "g-1", stage: "acked", seq: 7 };
  const react = { ...acked, fields: { type: "react", seq: 1, emoji: "🎉" } };
  const [before] = build([message(1)], { pending: [react] });
  assert.deepEqual(before.message.reactions, { ann: "🎉" });
  assert.equal(before.isChanging, false);

  const remove = { ...react, ref: "y", seq: 0, stage: "inFlight" };
  remove.fields = { ...react.fields, emoji: "" };
  const [removed] = build([message(1)], { pending: [react, remove] });
  assert.deepEqual(removed.message.reactions, {});

  const [after] = build([message(1, { rev: 8 })], { pending: [react] });
  assert.equal(after.message.reactions, undefined);
});

test("each user has one reaction, even with a username such as __proto__", () => {
  const me = "__proto__";
  const react = { ref: "x", chat: "g-1", stage: "queued", fields: { type: "react", seq: 1 } };
  react.fields.emoji = "🎉";
  const [row] = build([message(1, { reactions: { ben: "👍" } })], { me, pending: [react] });
  assert.deepEqual(Object.entries(row.message.reactions), [
    ["ben", "👍"],
    [me, "🎉"],
  ]);
  react.fields.emoji = "";
  const [without] = build([row.message], { me, pending: [react] });
  assert.deepEqual(Object.entries(without.message.reactions), [["ben", "👍"]]);
});

test("unchanged rows are the same objects", () => {
  const builder = new RowBuilder();
  const send = { ref: "new", chat: "g-1", stage: "queued", fields: { type: "send", body: "hi" } };
  const react = {
    ref: "r",
    chat: "g-1",
    stage: "queued",
    fields: { type: "react", seq: 1, emoji: "👍" },
  };
  const entries = [message(1), message(2, { sender: "cy" }), message(3)];
  const before = build(entries, { pending: [send, react] }, builder);
  const after = build([...entries, message(4)], { pending: [send, react] }, builder);
  assert.equal(after.length, 5);
  assert.deepEqual(
    [0, 1].map((index) => after[index] === before[index]),
    [true, true],
  );
  assert.equal(after[2] === before[2], false); // no longer the last of its series
  assert.equal(after[4], before[3]);
});

// window

/** Return a chat of `count` entries, with `localCount` on the device; each tenth is a reaction. */
function createSource(count, localCount = 100) {
  const all = Array.from({ length: count }, (_, index) =>
    message(index + 1, index % 10 === 9 ? { kind: "reaction", target: index } : {}),
  );
  const calls = [];
  const page = (entries, hasOlder, hasNewer) => ({ entries, hasOlder, hasNewer });
  const slice = (from, to) => all.filter(({ seq }) => seq >= from && seq <= to);
  return {
    all,
    calls,
    needsHistory: false,
    clearedUpto: 0,
    listLocal() {
      const isVisible = ({ seq, kind }) => kind === "text" && seq > this.clearedUpto;
      return all.slice(-localCount).filter(isVisible);
    },
    async loadNewest(limit) {
      return page(all.slice(-limit), all.length > limit, false);
    },
    async loadBefore(seq, limit) {
      calls.push(seq);
      const entries = slice(seq - limit, seq - 1);
      return page(entries, (entries[0]?.seq ?? 1) > 1, true);
    },
    async loadAfter(seq, limit) {
      calls.push(seq);
      return page(slice(seq + 1, seq + limit), true, seq + limit < all.length);
    },
    async loadAround(seq, limit) {
      const entries = slice(seq - limit / 2, seq + limit / 2);
      return page(entries, entries[0].seq > 1, entries.at(-1).seq < all.length);
    },
    async findSeqAt(timeMs) {
      return all.find(({ ts }) => ts >= timeMs * 1000)?.seq ?? null;
    },
  };
}

const seqs = (window) => window.getState().entries.map(({ seq }) => seq);

function checkComplete(window, source) {
  const shown = seqs(window);
  const expected = source.all
    .filter(({ seq, kind }) => kind === "text" && seq >= shown[0] && seq <= shown.at(-1))
    .map(({ seq }) => seq);
  assert.deepEqual(shown, expected);
}

test("a bounded window can scroll through the whole chat, up and down", async () => {
  const source = createSource(5_000);
  const window = new MessageWindow(source);
  await window.open(5_000, 0);
  assert.equal(seqs(window).at(-1), 4_999);

  while (window.getState().hasOlder) {
    await window.loadOlder();
    assert.ok(window.getState().isShifted || !window.getState().hasOlder);
    window.trim(false);
    assert.ok(seqs(window).length <= ENTRIES_MAX);
    checkComplete(window, source);
  }
  assert.equal(seqs(window)[0], 1);
  assert.equal(window.getState().isLive, false);

  while (!window.getState().isLive) {
    await window.loadNewer();
    window.trim(true);
    assert.ok(seqs(window).length <= ENTRIES_MAX);
    checkComplete(window, source);
  }
  assert.equal(seqs(window).at(-1), 4_999);
});

test("new messages appear only while the window is live", async () => {
  const source = createSource(2_000);
  const window = new MessageWindow(source);
  await window.open(2_000, 0);
  source.all.push(message(2_001));
  window.refresh();
  assert.equal(seqs(window).at(-1), 2_001);

  await window.jumpTo(300);
  source.all.push(message(2_002));
  window.refresh();
  assert.equal(seqs(window).includes(2_002), false);
  checkComplete(window, source);

  await window.jumpToNewest();
  assert.equal(seqs(window).at(-1), 2_002);
});

test("a chat opens at the first unread message, even far above", async () => {
  const source = createSource(3_000);
  const near = new MessageWindow(source);
  await near.open(2_960, 36);
  assert.ok(seqs(near).some((seq) => seq <= 2_960) && near.getState().isLive);

  const far = new MessageWindow(source);
  await far.open(500, 2_250);
  assert.ok(seqs(far)[0] < 500 && seqs(far).includes(502));
  assert.equal(far.getState().isLive, false);
});

test("loaded entries are the same objects until a change replaces them", async () => {
  const source = createSource(300);
  const window = new MessageWindow(source);
  await window.open(300, 0);
  await window.loadOlder();
  const [first] = window.getState().entries;
  window.refresh();
  assert.equal(window.getState().entries[0], first);

  window.applyChange(message(400, { kind: "edit", target: first.seq, body: "new" }));
  assert.equal(window.getState().entries[0].body, "new");
  window.applyChange(message(399, { kind: "edit", target: first.seq, body: "older" }));
  assert.equal(window.getState().entries[0].body, "new");
  window.applyChange(message(401, { kind: "reaction", target: first.seq, body: "👍" }));
  assert.deepEqual(window.getState().entries[0].reactions, { ben: "👍" });
  window.hide([first.seq]);
  assert.deepEqual(
    [window.getState().entries[0].deleted, window.getState().entries[0].body],
    [true, ""],
  );
});

test("a message is hidden when it expires, and the next expiry is returned", async () => {
  const source = createSource(30);
  source.all[20].expires_at = 100;
  source.all[22].expires_at = 200;
  const window = new MessageWindow(source);
  await window.open(30, 0);
  const deleted = () => window.getState().entries.filter((entry) => entry.deleted);
  assert.equal(window.expire(99), 100);
  assert.deepEqual(deleted(), []);
  assert.equal(window.expire(100), 200);
  assert.deepEqual(
    deleted().map(({ seq, body }) => [seq, body]),
    [[21, ""]],
  );
  assert.equal(window.expire(200), Infinity);
  assert.deepEqual(
    deleted().map(({ seq }) => seq),
    [21, 23],
  );
});

test("after a clear, later messages stay and earlier ones are not loaded", async () => {
  const source = createSource(60);
  const window = new MessageWindow(source);
  await window.open(60, 0);
  source.clearedUpto = 55;
  window.refresh();
  assert.deepEqual(seqs(window), [56, 57, 58, 59]);
  assert.equal(window.getState().hasOlder, false);
  window.addEntry(message(50, { kind: "pin", target: 1 }));
  assert.deepEqual(seqs(window), [56, 57, 58, 59]);
});

test("jumps to a loaded message, to a date, and to a message that cannot be loaded", async () => {
  const source = createSource(2_000);
  const window = new MessageWindow(source);
  await window.open(2_000, 0);
  const { generation } = window.getState();
  assert.equal(await window.jumpTo(1_995), true);
  assert.equal(window.getState().generation, generation);
  assert.equal(await window.jumpToTime(NOON_MS + 101_000), true);
  assert.equal(window.getState().target, 101);
  assert.ok(window.getState().generation > generation && seqs(window).includes(101));
  assert.equal(await window.jumpToTime(NOON_MS * 2), false);

  source.loadAround = async () => {
    throw new Error("gone");
  };
  assert.equal(await window.jumpTo(1_200), false);
  assert.equal(window.getState().error.message, "gone");
});

test("a response that arrives after another jump is ignored", async () => {
  const source = createSource(2_000);
  const window = new MessageWindow(source);
  await window.open(2_000, 0);
  const older = window.loadOlder();
  await window.jumpTo(200);
  await older;
  checkComplete(window, source);
  assert.equal(window.getState().loading, null);
});
