// Frames and states for the tests, with every field that a test does not care about filled in.

import { initialState, reduce } from "../../../chatserver/web/store.js";

export const EPOCH = "e1";

export function message(seq, change = {}) {
  return {
    seq,
    ts: 1_700_000_000_000_000 + seq * 1_000_000,
    chat: "c1",
    mid: `m${seq}`,
    sender: "bob",
    ref: `r${seq}`,
    kind: "text",
    body: `text ${seq}`,
    ...change,
  };
}

export function messages(from, to, change = {}) {
  return Array.from({ length: to - from + 1 }, (_, i) => message(from + i, change));
}

/** An entry that is no message: what happened to one, or to the chat. */
export function change(seq, kind, fields = {}) {
  return message(seq, { kind, body: "", ...fields });
}

export function entryEvent(seq, shown) {
  return { ...messageEvent(seq, shown), kind: shown.kind };
}

export function messageEvent(seq, shown, epoch = EPOCH) {
  const { chat, seq: cs } = shown;
  return { type: "event", epoch, seq, kind: "message", chat, cs, message: shown };
}

export function readEvent(seq, marks, chat = "c1") {
  return { type: "event", epoch: EPOCH, seq, kind: "read", chat, cs: 0, read: marks };
}

export function chatEvent(seq, info) {
  return { type: "event", epoch: EPOCH, seq, kind: "chat", chat: info.chat, cs: 0, info };
}

export function summary(change = {}) {
  const unread = (change.top ?? 0) - (change.read ?? 0);
  return { chat: "c1", kind: "direct", members: ["alice", "bob"], unread, ...change };
}

export function page(found, change = {}) {
  return { type: "page", chat: "c1", messages: found, tier: "hot", more: false, ...change };
}

export function entry(ref, change = {}) {
  const base = { ref, chat: "c1", body: `body of ${ref}`, replyTo: null, at: 1_700_000_100_000 };
  return {
    ...base,
    status: "queued",
    tried: false,
    seq: null,
    ts: null,
    error: null,
    retryAt: 0,
    ...change,
  };
}

/** Apply actions one after another. */
export function after(state, ...actions) {
  return actions.reduce(reduce, state);
}

export function welcome(change = {}) {
  const limits = { page_max: 200, body_chars_max: 4000 };
  const frame = { type: "welcome", user: "alice", epoch: EPOCH, seq: 0, limits, ...change };
  return { type: "welcome", frame };
}

export function list(summaries, change = {}) {
  return { type: "list", frame: { chats: summaries, more: false, ...change } };
}

export function event(frame) {
  return { type: "event", frame, now: 1_700_000_200_000 };
}

/** alice is connected, and has one direct chat with bob that holds nothing. */
export function connected() {
  return after(initialState(), welcome(), list([summary()]), {
    type: "link",
    link: { status: "open" },
  });
}

/** The same with the chat open, watched, and `found` loaded. */
export function reading(found = [], change = {}) {
  const top = found.at(-1)?.seq ?? 0;
  return after(
    initialState(),
    welcome(),
    list([summary({ top, read: top, last: found.at(-1) ?? null, ...change })]),
    { type: "link", link: { status: "open" } },
    { type: "watched", isWatched: true },
    { type: "open", chat: "c1" },
    { type: "page", chat: "c1", want: "newest", frame: page(found) },
  );
}

export function seqs(state, id = "c1") {
  return state.chats.get(id).messages.map((each) => each.seq);
}
