// Large chats: no places in the inbox, and the way there and back.

import assert from "node:assert/strict";
import { test } from "node:test";

import { initialState } from "../../../chatserver/web/store.js";
import {
  after,
  change,
  chatEvent,
  entryEvent,
  event,
  list,
  message,
  messageEvent,
  messages,
  reading,
  seqs,
  summary,
  welcome,
} from "./builders.mjs";

const GROUP = { chat: "c1", kind: "group", members: ["alice", "bob"] };

const turn = (seq, large, since) => event(chatEvent(seq, { ...GROUP, large, since }));

const said = (cs) => event(messageEvent(0, message(cs)));

test("events of a large chat come once each and leave the cursor where it is", () => {
  const start = after(reading(messages(1, 5)), turn(1, true, 5));

  const state = after(start, said(6), said(6), said(7));

  assert.deepEqual(seqs(state), [1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(state.cursor, { epoch: "e1", seq: 1 });
  assert.deepEqual([...state.large], [["c1", 7]]);
});

test("a chat that becomes small again goes on in the inbox", () => {
  const large = after(reading(messages(1, 5)), turn(1, true, 5), said(6));

  const state = after(large, turn(2, undefined, 6), event(messageEvent(3, message(7))));

  assert.deepEqual(seqs(state), [1, 2, 3, 4, 5, 6, 7]);
  assert.equal(state.large.size, 0);
  assert.equal(state.cursor.seq, 3);
});

test("who is removed from a large chat has no place in it", () => {
  const large = after(reading(messages(1, 5)), turn(1, true, 5));
  const out = change(6, "member", { user: "alice", role: "" });

  const state = after(large, event(entryEvent(2, out)));

  assert.equal(state.large.size, 0);
});

test("positions are kept across connections and sent again", () => {
  const large = after(reading(messages(1, 5)), turn(1, true, 5), said(6));

  const state = after(large, welcome({ seq: 1, large: [{ chat: "c1", seq: 6 }] }));

  assert.deepEqual([...state.large], [["c1", 6]]);
  assert.equal(state.needsList, false);
});

test("what no event is going to tell of is found in the list", () => {
  const large = after(reading(messages(1, 5)));

  const state = after(large, welcome({ large: [{ chat: "c1", seq: 9 }] }));

  assert.equal(state.needsList, true);
  const listed = after(state, list([summary({ top: 9, read: 5 })]));
  assert.equal(listed.chats.get("c1").top, 9);
  assert.deepEqual([...listed.large], [["c1", 9]]);
});

test("a snapshot moves our place to what it lists", () => {
  const large = after(reading(messages(1, 5)), turn(1, true, 5), said(6));
  const frame = { type: "too_long", cursor: { epoch: "e1", seq: 1 }, chats: [summary({ top: 40 })] };

  const state = after(large, { type: "snapshot", frame, now: 1 });

  assert.deepEqual([...state.large], [["c1", 40]]);
  assert.equal(after(initialState(), welcome()).large.size, 0);
});
