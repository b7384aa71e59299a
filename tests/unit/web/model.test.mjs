// State and events are the fresh state: however frames come in, what the client believes in the
// end is what a client that asked afresh would believe. Random runs with a printed seed.

import assert from "node:assert/strict";
import { test } from "node:test";

import { unreadOf } from "../../../chatserver/web/state/chats.js";
import { initialState } from "../../../chatserver/web/store.js";
import {
  after,
  change,
  entryEvent,
  event,
  list,
  message,
  messageEvent,
  page,
  readEvent,
  summary,
  welcome,
} from "./builders.mjs";

/** A small generator of random numbers (mulberry32), so that a failure can be repeated. */
function generator(seed) {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const isUnread = ({ seq, kind, deleted }, read) => seq > read && kind === "text" && !deleted;

/** The server, in a few lines: two chats, marks, alice's inbox. */
class Model {
  inbox = [];
  chats = new Map(["c1", "c2"].map((id) => [id, { log: [], read: { alice: 0, bob: 0 } }]));

  post(id, sender) {
    const { log, read } = this.chats.get(id);
    const seq = log.length + 1;
    log.push(message(seq, { chat: id, sender, ref: `${id}-${seq}` }));
    read[sender] = seq;
    this.inbox.push(messageEvent(this.inbox.length + 1, log.at(-1)));
  }

  /** Change a message: the log holds each one as it is now, as the server's history does. */
  amend(id, sender, kind, target) {
    const { log } = this.chats.get(id);
    const old = log[target - 1];
    if (old === undefined || old.kind !== "text" || old.deleted) return;
    const seq = log.length + 1;
    const body = { edit: `edited by ${seq}`, delete: "", reaction: seq % 3 ? "👍" : "" }[kind];
    const made = change(seq, kind, { chat: id, sender, target, body, ref: `${id}-${seq}` });
    log.push(made);
    const now = { ...old, rev: seq };
    if (kind === "edit") Object.assign(now, { body, edited_ts: made.ts, edited_seq: seq });
    if (kind === "reaction") now.reactions = { ...old.reactions, [sender]: body };
    if (kind === "reaction" && body === "") delete now.reactions[sender];
    if (kind === "delete") {
      Object.assign(now, { body, deleted: true });
      for (const name of ["reactions", "edited_ts", "edited_seq"]) delete now[name];
    }
    log[target - 1] = now;
    this.inbox.push(entryEvent(this.inbox.length + 1, made));
  }

  mark(id, user, seq) {
    const { read, log } = this.chats.get(id);
    if (seq <= read[user] || seq > log.length) return;
    read[user] = seq;
    this.inbox.push(readEvent(this.inbox.length + 1, { user, read: seq }, id));
  }

  summary(id) {
    const { log, read } = this.chats.get(id);
    const unread = log.filter((entry) => isUnread(entry, read.alice)).length;
    const last = log.findLast((each) => each.kind === "text");
    const facts = {
      chat: id,
      top: log.length,
      read: read.alice,
      unread,
      peer: { user: "bob", read: read.bob },
    };
    return summary(last ? { ...facts, last } : facts);
  }

  summaries() {
    return [...this.chats.keys()].map((id) => this.summary(id));
  }

  newest(id, limit) {
    const { log } = this.chats.get(id);
    const found = log.slice(-limit);
    return page(found, { chat: id, more: found.length < log.length });
  }

  following(id, seq, limit) {
    const { log } = this.chats.get(id);
    const found = log.slice(seq, seq + limit);
    return page(found, { chat: id, more: seq + limit < log.length });
  }
}

function run(seed) {
  const random = generator(seed);
  const pick = (items) => items[Math.floor(random() * items.length)];
  const model = new Model();
  const step = () => {
    const id = pick(["c1", "c2"]);
    const user = pick(["alice", "bob"]);
    const target = Math.ceil(random() * 30);
    if (random() < 0.5) model.post(id, user);
    else if (random() < 0.6) model.amend(id, user, pick(["edit", "delete", "reaction"]), target);
    else model.mark(id, pick(["alice", "bob"]), Math.ceil(random() * 30));
  };
  for (let i = 0; i < random() * 20; i += 1) step();

  let state = after(initialState(), welcome({ seq: model.inbox.length }));
  let sent = model.inbox.length;
  let isListed = false;
  const answers = []; // made by the server at one time, here at another
  for (let i = 0; i < 60; i += 1) {
    step();
    if (i === 5) answers.push(list(model.summaries()));
    if (isListed && random() < 0.1) {
      const chat = pick(["c1", "c2"]);
      state = after(state, { type: "open", chat });
      answers.push({ type: "page", chat, want: "newest", frame: model.newest(chat, 10) });
    }
    if (answers.length > 0 && random() < 0.4) {
      const answer = answers.shift();
      isListed ||= answer.type === "list";
      state = after(state, answer);
    }
    const batch = model.inbox.slice(sent);
    if (random() < 0.5) batch.reverse();
    if (random() < 0.7) sent = model.inbox.length;
    for (const frame of batch) state = after(state, event(frame));
  }
  state = after(state, ...answers, ...model.inbox.slice(-200).map(event));
  return { state: fillHoles(state, model), fresh: fresh(model), model };
}

/** Fetch what the client would fetch, until it misses nothing. */
function fillHoles(start, model) {
  let state = start;
  for (const chat of ["c1", "c2"]) {
    for (let tries = 0; state.chats.get(chat).hole !== null; tries += 1) {
      assert.ok(tries < 20, "a hole is never filled");
      const frame = model.following(chat, state.chats.get(chat).hole.after, 7);
      state = after(state, { type: "page", chat, want: "hole", frame });
    }
  }
  return state;
}

function fresh(model) {
  return after(initialState(), welcome(), list(model.summaries()));
}

test("whatever the order of frames, the end is what a fresh client sees", () => {
  for (let seed = 1; seed <= 400; seed += 1) {
    const { state, fresh: asked, model } = run(seed);
    for (const id of ["c1", "c2"]) {
      const [ours, theirs] = [state.chats.get(id), asked.chats.get(id)];
      const facts = (chat) => [
        chat.top,
        chat.read,
        chat.last,
        chat.marks.get("bob")?.read ?? 0,
      ];
      assert.deepEqual(facts(ours), facts(theirs), `seed ${seed}, ${id}`);
      const { log, read } = model.chats.get(id);
      const unread = log.filter((entry) => isUnread(entry, read.alice)).length;
      assert.equal(unreadOf(theirs), unread, `seed ${seed}, ${id}`);
      assert.equal(unreadOf(ours), unread, `seed ${seed}, ${id}`);
      const whole = log.slice((ours.messages[0]?.seq ?? 1) - 1);
      if (ours.older !== "unknown") assert.deepEqual(ours.messages, whole, `seed ${seed}, ${id}`);
    }
    assert.equal(state.cursor.seq, model.inbox.length, `seed ${seed}`);
  }
});
