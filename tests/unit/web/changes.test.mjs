// Entries that are no messages: what they do to the messages, to the rows, to what is counted; and
// how the user makes them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { isSameRow, timelineRows } from "../../../chatserver/web/timeline_rows.js";
import { listChats, preview } from "../../../chatserver/web/selectors.js";
import { applyEntry } from "../../../chatserver/web/state/changes.js";
import { unreadOf } from "../../../chatserver/web/state/chats.js";
import { seenWith } from "../../../chatserver/web/state/messages.js";
import { reduce } from "../../../chatserver/web/store.js";
import {
  after,
  change,
  connected,
  entry,
  entryEvent,
  event,
  list,
  message,
  messageEvent,
  messages,
  page,
  reading,
  seqs,
  summary,
} from "./builders.mjs";

const chatOf = (state) => state.chats.get("c1");
const rowsOf = (state) => timelineRows(state, chatOf(state), Date.now());
const drawn = (state) => rowsOf(state).filter((row) => row.type === "message");
const system = (state) => rowsOf(state).filter((row) => row.type === "system");
const live = (...entries) => entries.map((each, i) => event(entryEvent(i + 1, each)));
const edit = (seq, target, body, more = {}) => change(seq, "edit", { target, body, ...more });
const react = (seq, target, body, more = {}) => change(seq, "reaction", { target, body, ...more });

test("an edit, a reaction and a delete change their message and are never drawn", () => {
  const start = reading(messages(1, 2));

  const changed = after(start, ...live(edit(3, 1, "better"), react(4, 1, "👍")));
  const gone = reduce(changed, event(entryEvent(3, change(5, "delete", { target: 2 }))));

  const [first] = drawn(changed);
  assert.deepEqual([first.body, first.isEdited, first.hasFoot], ["better", true, true]);
  assert.deepEqual(JSON.parse(first.reactions), [["👍", false, ["bob"]]]);
  assert.equal(drawn(gone)[1].body, "This message was deleted");
  assert.ok(drawn(gone)[1].isGone);
  assert.deepEqual(seqs(gone), [1, 2, 3, 4, 5]);
  assert.equal(drawn(gone).length, 2);
  assert.equal(chatOf(gone).hole, null);
});

test("a change that is not newer than its message changes nothing", () => {
  const known = message(1, { rev: 7, body: "newest" });

  assert.equal(applyEntry(known, edit(6, 1, "older")), known);
  assert.equal(applyEntry(known, edit(9, 1, "", { deleted: true })), known);
  assert.equal(applyEntry({ ...known, deleted: true }, edit(9, 1, "back")).body, "newest");
});

test("a reaction is one for each user, whatever the user is called", () => {
  const odd = { sender: "__proto__" };

  const once = applyEntry(message(1), react(2, 1, "👍", odd));
  const twice = applyEntry(once, react(3, 1, "🙏", odd));
  const none = applyEntry(twice, react(4, 1, "", odd));

  assert.deepEqual(Object.entries(twice.reactions), [["__proto__", "🙏"]]);
  assert.deepEqual(Object.entries(none.reactions), []);
});

test("changes behind a hole wait until it is filled, and then apply in order", () => {
  const start = reading(messages(1, 2));

  const waiting = after(start, ...live(react(4, 1, "👍")));
  const want = { type: "page", chat: "c1", want: "hole" };
  const filled = reduce(waiting, { ...want, frame: page([edit(3, 1, "edited"), react(4, 1, "👍")]) });

  assert.equal(chatOf(waiting).messages[0].rev, undefined);
  assert.equal(chatOf(filled).messages[0].body, "edited");
  assert.deepEqual(chatOf(filled).messages[0].reactions, { bob: "👍" });
});

test("an older page brings messages that are brought up to date by the changes that are loaded", () => {
  const start = reading([message(5), edit(6, 2, "edited")]);
  const more = { ...chatOf(start), older: "more" };
  const cut = { ...start, chats: new Map([["c1", more]]) };

  const frame = page(messages(1, 4));
  const state = reduce(cut, { type: "page", chat: "c1", want: "older", before: 5, frame });

  assert.equal(chatOf(state).messages[1].body, "edited");
});

test("a hidden message is gone here, and an edit does not bring it back", () => {
  const hidden = { ...messageEvent(1, message(1)), kind: "hidden", message: null, hidden: [2] };

  const state = after(reading(messages(1, 2)), event(hidden), event(entryEvent(2, edit(3, 2, "x"))));

  assert.equal(drawn(state)[1].body, "This message was deleted");
  assert.equal(preview(state, chatOf(state)).text, "This message was deleted");
});

test("only messages are counted as unread and stand in the list", () => {
  const start = after(connected(), ...live(message(1), edit(2, 1, "edited"), react(3, 1, "👍")));
  const later = reduce(start, event(entryEvent(4, message(4))));
  const read = reduce(later, { type: "seen", chat: "c1", seq: 3 });

  assert.equal(unreadOf(chatOf(start)), 1);
  assert.equal(preview(start, chatOf(start)).text, "edited");
  assert.equal(unreadOf(chatOf(later)), 2);
  assert.equal(unreadOf(chatOf(read)), 1);
});

test("who changes a message has not read those after it, ourselves included", () => {
  const mine = react(4, 1, "👍", { sender: "alice" });
  const state = after(connected(), ...live(...messages(1, 3), mine, react(5, 1, "👍")));

  assert.equal(chatOf(state).read, 0);
  assert.equal(chatOf(state).marks.get("bob").read, 3);
  assert.equal(unreadOf(chatOf(state)), 3);
});

test("deleted messages are not unread, whether the server or the page counted them", () => {
  const listed = after(connected(), list([summary({ top: 3, read: 0, unread: 3, last: message(3) })]));
  const fewer = reduce(listed, event(entryEvent(1, change(4, "delete", { target: 2 }))));
  const hidden = { ...messageEvent(2, message(1)), kind: "hidden", message: null, hidden: [1, 2] };
  const none = after(fewer, event(hidden), event(entryEvent(3, change(5, "delete", { target: 3 }))));

  assert.deepEqual([listed, fewer, none].map((state) => unreadOf(chatOf(state))), [3, 2, 0]);
});

test("a chat whose newest message was read is read, whatever happened to it since", () => {
  const state = after(connected(), list([summary({ top: 9, read: 5, unread: 0, last: message(5) })]));

  assert.equal(unreadOf(chatOf(state)), 0);
});

test("with a message the changes that follow it are seen", () => {
  const state = reading([message(1), edit(2, 1, "x"), react(3, 1, "👍"), message(4)]);

  assert.equal(seenWith(chatOf(state), 1), 3);
  assert.equal(seenWith(chatOf(state), 4), 4);
});

test("membership and name changes have a system message and update the chat", () => {
  const group = { kind: "group", members: ["alice", "bob", "carol"], name: "Trip" };
  const member = (seq, user, role, sender = "bob") => change(seq, "member", { user, role, sender });

  const state = after(
    reading([message(1)], group),
    ...live(
      member(2, "dave", "member", "dave"),
      member(3, "emma", "member"),
      member(4, "emma", "admin"),
      member(5, "emma", "member"),
      member(6, "carol", undefined),
      member(7, "dave", "", "dave"),
      change(8, "update", { name: "Team", sender: "alice" }),
    ),
  );

  assert.deepEqual(
    system(state).map((row) => row.text),
    [
      "dave joined",
      "bob added emma",
      "bob made emma an admin",
      "bob changed emma’s role to member",
      "bob removed carol",
      "dave left",
      "You named the group \u2068Team\u2069",
    ],
  );
  assert.deepEqual(chatOf(state).members, ["alice", "bob", "emma"]);
  assert.equal(chatOf(state).name, "Team");
  assert.equal(rowsOf(state).filter((row) => row.type === "day").length, 1);
});

test("slow mode and disappearing messages have their own system messages", () => {
  const update = (seq, body) => change(seq, "update", { sender: "alice", body });

  const state = after(
    reading([message(1)], { kind: "group", members: ["alice", "bob"], name: "Trip" }),
    ...live(
      update(2, '{"slow_s":30}'),
      update(3, '{"slow_s":0}'),
      update(4, '{"joining":"open"}'),
      update(5, '{"retention_s":604800}'),
      update(6, '{"retention_s":90}'),
      update(7, '{"retention_s":0}'),
    ),
  );

  assert.deepEqual(
    system(state).map((row) => row.text),
    [
      "You turned on slow mode: one message every 30 seconds",
      "You turned off slow mode",
      "You changed the group’s settings",
      "You set new messages to disappear after 7 days",
      "You set new messages to disappear after 90 seconds",
      "You turned off disappearing messages",
    ],
  );
});

test("mute, unmute and ban have their own system messages, unlike join and leave", () => {
  const group = { kind: "group", members: ["alice", "bob", "carol"], name: "Trip" };
  const member = (seq, user, fields) =>
    change(seq, "member", { user, sender: "alice", role: "member", ...fields });

  const state = after(
    reading([message(1)], group),
    ...live(
      member(2, "bob", { muted_until: 0 }),
      member(3, "bob", { muted_until: 1 }),
      member(4, "carol", { muted_until: 1_800_000_000 }),
      member(5, "carol", { muted_until: 1 }),
      member(6, "carol", { role: undefined, banned: true }),
      member(7, "carol"),
    ),
  );

  const [muted, again, whileMuted, ...rest] = system(state).map((row) => row.text);
  assert.deepEqual([muted, again], ["You muted bob", "You unmuted bob"]);
  assert.match(whileMuted, /^You muted carol until .*2027/);
  assert.deepEqual(rest, ["You unmuted carol", "You banned carol", "You added carol"]);
});

test("a change is shown at once, and an error reverts it with a reason", () => {
  const start = reading([message(1, { sender: "alice" })]);
  const change = { kind: "edit", target: 1 };

  const asked = reduce(start, { type: "change", entry: entry("e", { body: "better", change }) });
  const refused = reduce(asked, { type: "failed", ref: "e", text: "No." });

  const [row] = drawn(asked);
  assert.deepEqual([row.body, row.isEdited, row.mark], ["better", true, "sending"]);
  const [back] = drawn(refused);
  assert.deepEqual(
    [back.body, back.error, back.troubleRef],
    ["text 1", "Not changed. No.", "e"],
  );
  assert.equal(preview(asked, chatOf(asked)).text, "text 1");
  assert.equal(listChats(asked).length, 1);
  assert.equal(drawn(asked).length, 1);
  assert.ok(!isSameRow(row, back));
});

test("what the user changed leaves the outbox with its event, or with an ack that comes after it", () => {
  const change = { kind: "reaction", target: 1 };
  const asked = after(reading(messages(1, 1)), {
    type: "change",
    entry: entry("e", { body: "👍", change }),
  });
  const ack = { type: "ack", frame: { ref: "e", seq: 2, ts: 2, durability: "hot" } };
  const told = event(entryEvent(1, react(2, 1, "👍", { sender: "alice", ref: "e" })));

  for (const state of [after(asked, ack, told), after(asked, told, ack)]) {
    assert.deepEqual(state.outbox, []);
    assert.deepEqual(state.unstored, []);
    assert.deepEqual(JSON.parse(drawn(state)[0].reactions), [["👍", true, ["you"]]]);
  }
  assert.equal(drawn(reduce(asked, ack))[0].reactions, drawn(asked)[0].reactions);
});

test("in a new epoch nothing is changed in a place that may be another message's", () => {
  const change = { kind: "delete", target: 1 };
  const asked = after(reading(messages(1, 1)), { type: "change", entry: entry("e", { change }) });

  const frame = { cursor: { epoch: "e2", seq: 0 }, chats: [] };
  const state = reduce(asked, { type: "snapshot", frame, now: 1_700_000_100_001 });

  assert.deepEqual(state.outbox, []);
});
