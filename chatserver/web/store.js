// The client state, and how frames and user actions change it.
//
// `reduce(state, action)` is pure: no clock, no network, no DOM; times come with the action.

import {
  addInfo,
  addMarks,
  mergeSummaries,
  readUpto,
  receiveEntry,
  replaceChats,
  unreadOf,
  withChat,
} from "./state/chats.js";
import { isMessage } from "./state/changes.js";
import { expireChats } from "./state/expiry.js";
import { holdBack, classifyEvent, takeNext } from "./state/inbox.js";
import { addStartPositions, isBehind, isNewEvent, advance, applySnapshot, applyTransition } from "./state/large_chats.js";
import {
  addPage,
  blankChat,
  dropMessages,
  findMessage,
  hideMessages,
  loadedTop,
  trimMessages,
} from "./state/messages.js";
import {
  dropStored,
  keepUnstored,
  requeueUnstored,
  removeEntry,
  requeue,
  updateEntry,
  messageEntries,
} from "./state/outbox.js";
import { removeResponse, applyDelta, applyResponse } from "./state/ai_responses.js";

const TYPING_MS = 6000; // typing signals repeat every 3 s; two lost ones end it

export function initialState() {
  return {
    me: null,
    limits: null,
    cursor: null, // {epoch, seq} of the last event applied
    head: null, // newest seq when the connection opened; below it, missed events are arriving
    ahead: [], // events received out of order
    large: new Map(), // large chat → position of its last event
    link: { status: "idle" },
    chats: new Map(),
    isListLoaded: false,
    nextChats: null, // cursor of the next page of the chat list, null at its end
    needsList: false, // a chat without a summary appeared
    open: null, // id of the chat that is shown
    isWatched: false, // the window is visible and has the focus
    outbox: [],
    unstored: [],
    typing: new Map(), // chat → Map user → until (ms)
    responses: new Map(), // chat → response in progress of a companion
    drafts: new Map(),
    facts: new Map(), // chat → {stored, marks}, saved before a reload
  };
}

/** A store: holds the state, applies actions, notifies subscribers. */
export function createStore(state = initialState()) {
  const listeners = new Set();
  return {
    get state() {
      return state;
    },
    dispatch(action) {
      const before = state;
      state = reduce(before, action);
      if (state !== before) for (const listener of listeners) listener(state, before);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

const HANDLERS = {
  // from the server
  welcome,
  list: applyList,
  snapshot,
  event: receiveEvent,
  signal,
  ack,
  stored: (state, { frame }) => applyStored(state, frame),
  page: applyPage,
  response: (state, { frame }) => withResponses(state, applyResponse(state.responses, frame)),
  // from the connection
  link: (state, { link }) => ({ ...state, link }),
  disconnected: (state, { now }) => disconnected(state, now),
  loading: (state, { chat, want }) => patchChat(state, chat, { loading: want, trouble: null }),
  trouble: (state, { chat, text }) => patchChat(state, chat, { loading: null, trouble: text }),
  sending: (state, { ref }) => patchEntry(state, ref, { status: "sending", tried: true }),
  delayed: (state, { ref, retryAt }) => patchEntry(state, ref, { status: "queued", retryAt }),
  failed: (state, { ref, text }) => patchEntry(state, ref, { status: "failed", error: text }),
  // from the user
  restore,
  open: openChat,
  close: (state) => openChat(state, { chat: null }),
  info: (state, { info, now }) => ({ ...state, chats: addInfo(state.chats, info, now * 1000) }),
  compose,
  change: (state, { entry }) => ({ ...state, outbox: [...state.outbox, entry] }),
  retry: (state, { ref, now }) =>
    patchEntry(state, ref, { status: "queued", error: null, retryAt: 0, at: now }),
  discard: (state, { ref }) => ({ ...state, outbox: removeEntry(state.outbox, ref) }),
  seen: (state, { chat, seq }) => mapChat(state, chat, (c) => readUpto(c, seq)),
  trim: (state, { chat }) => mapChat(state, chat, (c) => trimMessages(c, true)),
  draft,
  watched: (state, { isWatched }) =>
    isWatched === state.isWatched ? state : { ...state, isWatched },
  tick: (state, { now }) => expireMessages(expireTyping(state, now), now),
};

/** Return the state after an action; the same object if nothing changed. */
export function reduce(state, action) {
  const handler = HANDLERS[action.type];
  if (handler === undefined) throw new Error(`no such action: ${action.type}`);
  return handler(state, action);
}

function mapChat(state, id, change) {
  const chat = state.chats.get(id);
  if (chat === undefined) return state;
  const changed = change(chat);
  return changed === chat ? state : { ...state, chats: withChat(state.chats, changed) };
}

function patchChat(state, id, change) {
  return mapChat(state, id, (chat) => ({ ...chat, ...change }));
}

function patchEntry(state, ref, change) {
  return { ...state, outbox: updateEntry(state.outbox, ref, change) };
}

// ── the server ──────────────────────────────────────────────────────────────────────────────────

/** The connection is open. Without a cursor, the inbox starts at the server's position. */
function welcome(state, { frame }) {
  const place = { epoch: frame.epoch, seq: frame.seq };
  return {
    ...state,
    me: frame.user,
    limits: frame.limits,
    cursor: state.cursor ?? place,
    head: place,
    ahead: [],
    large: addStartPositions(state.large, frame.large),
    needsList: state.needsList || isBehind(state.chats, frame.large),
  };
}

function applyList(state, { frame }) {
  return {
    ...state,
    chats: mergeSummaries(state.chats, frame.chats ?? [], state.facts),
    isListLoaded: true,
    nextChats: frame.more ? (frame.next ?? null) : null,
    needsList: false,
  };
}

/** `too_long` and `reset`: replace all known state. */
function snapshot(state, { frame, now }) {
  const isNewEpoch = state.cursor !== null && frame.cursor.epoch !== state.cursor.epoch;
  const outbox = isNewEpoch
    ? requeueUnstored(messageEntries(state.outbox), state.unstored, now)
    : state.outbox.filter((entry) => entry.status !== "acked");
  let chats = replaceChats(state.chats, frame.chats ?? [], isNewEpoch);
  if (state.open !== null && !chats.has(state.open)) {
    const open = state.chats.get(state.open);
    if (open) chats = withChat(chats, dropMessages(open));
  }
  return {
    ...state,
    cursor: frame.cursor,
    head: frame.cursor,
    ahead: [],
    large: addStartPositions(applySnapshot(state.large, frame.chats, isNewEpoch), frame.large),
    chats,
    outbox,
    unstored: isNewEpoch ? [] : state.unstored, // their seqs are invalid: each is acked again
    isListLoaded: true,
    needsList: true, // the snapshot has the first page of the list, but no cursor
    typing: new Map(),
  };
}

/** Apply an event if it is next in order, then those held back for it. */
function receiveEvent(state, { frame, now }) {
  if (frame.seq === 0) return applyLargeEvent(state, frame);
  const verdict = classifyEvent(state.cursor, frame);
  if (verdict === "drop") return state;
  if (verdict === "gap") return { ...state, ahead: holdBack(state.ahead, frame) };
  let changed = applyEvent(state, frame, now);
  while (changed.ahead.length > 0) {
    const { next, rest } = takeNext(changed.ahead, changed.cursor);
    changed = { ...changed, ahead: rest };
    if (next === null) break;
    changed = applyEvent(changed, next, now);
  }
  return changed;
}

/** An event of a large chat moves the position there, not the cursor. */
function applyLargeEvent(state, frame) {
  if (!isNewEvent(state.large, frame)) return state;
  const moved = { ...state, large: advance(state.large, frame) };
  return frame.message ? applyChatEntry(moved, frame.message) : moved;
}

function applyEvent(state, frame, now) {
  const moved = {
    ...state,
    cursor: { epoch: frame.epoch, seq: frame.seq },
    large: applyTransition(state.large, frame, state.me),
  };
  if (frame.kind === "read") {
    return mapChat(moved, frame.chat, (chat) => addMarks(chat, frame.read, state.me));
  }
  if (frame.kind === "chat") {
    return { ...moved, chats: addInfo(moved.chats, frame.info, now * 1000) };
  }
  if (frame.kind === "hidden") {
    return mapChat(moved, frame.chat, (chat) => hideMessages(chat, frame.hidden ?? []));
  }
  if (frame.message) return applyChatEntry(moved, frame.message);
  return moved; // of a later protocol version: only the cursor moves
}

function applyChatEntry(state, entry) {
  const known = state.chats.get(entry.chat);
  const isWatched = state.open === entry.chat && state.isWatched;
  const chat = receiveEntry(known ?? blankChat(entry.chat), entry, state.me, isWatched);
  const changed = {
    ...state,
    chats: withChat(state.chats, chat),
    responses: removeResponse(state.responses, entry),
  };
  if (known === undefined) changed.needsList = true;
  if (entry.sender === state.me) changed.outbox = removeEntry(state.outbox, entry.ref);
  else if (isMessage(entry)) changed.typing = withoutTyping(state.typing, entry.chat, entry.sender);
  return changed;
}

/** A send was acked. Its event adds the message, unless that part is not loaded. */
function ack(state, { frame }) {
  const entry = state.outbox.find((each) => each.ref === frame.ref);
  if (entry === undefined) return state;
  if (entry.change) return ackChange(state, entry, frame);
  const unstored =
    frame.durability === "stored" ? state.unstored : keepUnstored(state.unstored, entry, frame.seq);
  const chat = state.chats.get(entry.chat);
  const isLoaded = chat !== undefined && chat.older !== "unknown";
  const isInWindow = isLoaded && frame.seq >= (chat.messages[0]?.seq ?? 1);
  if (!isInWindow || findMessage(chat, frame.seq) !== null) {
    return { ...state, unstored, outbox: removeEntry(state.outbox, frame.ref) };
  }
  const { seq, ts } = frame;
  const outbox = updateEntry(state.outbox, frame.ref, { status: "acked", seq, ts, error: null });
  const changed = { ...state, unstored, outbox };
  // Its event was not seen: load that part.
  if (seq <= loadedTop(chat)) return patchChat(changed, chat.id, { hole: holeAt(chat, seq) });
  return changed;
}

/** A change is committed. Until its event arrives, it is shown from the outbox. */
function ackChange(state, { ref, chat: id, change }, frame) {
  const top = state.chats.get(id)?.top ?? 0;
  if (change.kind !== "hide" && frame.seq > top) return patchEntry(state, ref, { status: "acked" });
  const changed = { ...state, outbox: removeEntry(state.outbox, ref) };
  if (change.kind !== "hide") return changed;
  return mapChat(changed, id, (chat) => hideMessages(chat, [change.target]));
}

function holeAt(chat, seq) {
  const after = Math.min(seq - 1, chat.hole?.after ?? Infinity);
  return { after, before: Math.max(seq + 1, chat.hole?.before ?? 0) };
}

function applyStored(state, { chat: id, upto }) {
  const changed = { ...state, unstored: dropStored(state.unstored, id, upto) };
  return mapChat(changed, id, (chat) => ({ ...chat, stored: Math.max(chat.stored, upto) }));
}

/** Add a page of history; messages in it leave the outbox. */
function applyPage(state, { chat: id, frame, want, before }) {
  const changed = mapChat(state, id, (chat) =>
    (frame.marks ?? []).reduce(
      (marked, marks) => addMarks(marked, marks, state.me),
      addPage(chat, frame, want, before),
    ),
  );
  const sent = new Set(frame.messages.filter((m) => m.sender === state.me).map((m) => m.ref));
  const outbox = changed.outbox.filter((entry) => entry.chat !== id || !sent.has(entry.ref));
  return outbox.length === changed.outbox.length ? changed : { ...changed, outbox };
}

function withResponses(state, responses) {
  return responses === state.responses ? state : { ...state, responses };
}

function signal(state, { frame, now }) {
  if (frame.kind === "ai.delta") return withResponses(state, applyDelta(state.responses, frame));
  if (frame.kind !== "typing" || frame.from === state.me) return state;
  if (!frame.on) {
    return { ...state, typing: withoutTyping(state.typing, frame.chat, frame.from) };
  }
  const users = new Map(state.typing.get(frame.chat)).set(frame.from, now + TYPING_MS);
  return { ...state, typing: new Map(state.typing).set(frame.chat, users) };
}

function withoutTyping(typing, chat, user) {
  if (!typing.get(chat)?.has(user)) return typing;
  const users = new Map(typing.get(chat));
  users.delete(user);
  const changed = new Map(typing);
  if (users.size > 0) changed.set(chat, users);
  else changed.delete(chat);
  return changed;
}

function expireTyping(state, now) {
  let typing = state.typing;
  for (const [chat, users] of state.typing) {
    for (const [user, until] of users) {
      if (until <= now) typing = withoutTyping(typing, chat, user);
    }
  }
  return typing === state.typing ? state : { ...state, typing };
}

function expireMessages(state, now) {
  const chats = expireChats(state.chats, now);
  return chats === state.chats ? state : { ...state, chats };
}

// ── the user and the connection ─────────────────────────────────────────────────────────────────

function disconnected(state, now) {
  const chats = new Map();
  for (const [id, chat] of state.chats) {
    chats.set(id, chat.loading === null ? chat : { ...chat, loading: null });
  }
  return { ...state, chats, outbox: requeue(state.outbox, now), ahead: [], typing: new Map() };
}

/**
 * Restore what was saved before a reload. Its epoch is unknown, so acked but unstored messages are
 * sent again; their ref makes that idempotent.
 */
function restore(state, { outbox, unstored, drafts, facts, now }) {
  const waiting = messageEntries(outbox).filter((entry) => entry.status !== "acked");
  const again = requeueUnstored(requeue(waiting, now), unstored, now);
  return { ...state, outbox: again, unstored: [], drafts, facts };
}

/** Open a chat; the divider is drawn at the first unread message. */
function openChat(state, { chat: id }) {
  if (id === state.open) return state;
  let changed = state;
  if (state.open !== null) {
    changed = mapChat(changed, state.open, (chat) => ({ ...trimMessages(chat), divider: null }));
  }
  if (id !== null) {
    changed = mapChat(changed, id, (chat) => ({
      ...chat,
      divider: unreadOf(chat) > 0 ? chat.read : null,
    }));
  }
  return { ...changed, open: id };
}

function compose(state, { entry }) {
  const changed = { ...state, outbox: [...state.outbox, entry] };
  return patchChat(changed, entry.chat, { divider: null });
}

function draft(state, { chat, text }) {
  const drafts = new Map(state.drafts);
  if (text.trim() === "") drafts.delete(chat);
  else drafts.set(chat, text);
  return { ...state, drafts };
}
