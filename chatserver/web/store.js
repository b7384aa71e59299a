// All that the client knows, and how each frame and each deed of the user changes it.
//
// `reduce(state, action)` is pure: no clock, no network, no DOM; times come with the action. The
// connection and the views stand on either side of it.

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
import { holdBack, judge, takeNext } from "./state/inbox.js";
import { beginLarge, isBehind, isNews, moveOn, startAgain, turn } from "./state/large.js";
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
  offerAgain,
  removeEntry,
  requeue,
  updateEntry,
  withoutDeeds,
} from "./state/outbox.js";
import { endTurn, takePiece, takeTurn } from "./state/turns.js";

const TYPING_MS = 6000; // a sign of writing is repeated every 3 s; two lost ones end it

export function initialState() {
  return {
    me: null,
    limits: null,
    cursor: null, // {epoch, seq} of the last event applied
    head: null, // newest seq when the connection opened: before it, we are catching up
    ahead: [], // events that came before their turn
    large: new Map(), // large chat → our place in it
    link: { status: "idle" },
    chats: new Map(),
    isListLoaded: false,
    nextChats: null, // where the chat list goes on, null at its end
    needsList: false, // a chat appeared that no summary told of
    open: null, // id of the chat that is shown
    isWatched: false, // the window is visible and has the focus
    outbox: [],
    unstored: [],
    typing: new Map(), // chat → Map user → until (ms)
    turns: new Map(), // chat → the answer that a companion is making there
    drafts: new Map(),
    facts: new Map(), // chat → {stored, marks}, from before a reload
  };
}

/** Hold a state, change it by actions, tell who listens. */
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
  list: takeList,
  snapshot,
  event: takeEvent,
  signal,
  ack,
  stored: (state, { frame }) => takeStored(state, frame),
  page: takePage,
  turn: (state, { frame }) => withTurns(state, takeTurn(state.turns, frame)),
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

/** The connection is open. Without a cursor of our own, the inbox begins where the server is. */
function welcome(state, { frame }) {
  const place = { epoch: frame.epoch, seq: frame.seq };
  return {
    ...state,
    me: frame.user,
    limits: frame.limits,
    cursor: state.cursor ?? place,
    head: place,
    ahead: [],
    large: beginLarge(state.large, frame.large),
    needsList: state.needsList || isBehind(state.chats, frame.large),
  };
}

function takeList(state, { frame }) {
  return {
    ...state,
    chats: mergeSummaries(state.chats, frame.chats ?? [], state.facts),
    isListLoaded: true,
    nextChats: frame.more ? (frame.next ?? null) : null,
    needsList: false,
  };
}

/** `too_long` and `reset`: what was known is out of date, as a whole. */
function snapshot(state, { frame, now }) {
  const isNewEpoch = state.cursor !== null && frame.cursor.epoch !== state.cursor.epoch;
  const outbox = isNewEpoch
    ? offerAgain(withoutDeeds(state.outbox), state.unstored, now)
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
    large: beginLarge(startAgain(state.large, frame.chats, isNewEpoch), frame.large),
    chats,
    outbox,
    unstored: isNewEpoch ? [] : state.unstored, // their places are void: each is acked anew
    isListLoaded: true,
    needsList: true, // the snapshot holds the first page of the list and not where it goes on
    typing: new Map(),
  };
}

/** Apply an event if it is its turn, then those that waited for it. */
function takeEvent(state, { frame, now }) {
  if (frame.seq === 0) return takeLargeEvent(state, frame);
  const verdict = judge(state.cursor, frame);
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

/** An event of a large chat: it moves our place there and not the cursor. */
function takeLargeEvent(state, frame) {
  if (!isNews(state.large, frame)) return state;
  const moved = { ...state, large: moveOn(state.large, frame) };
  return frame.message ? takeEntry(moved, frame.message) : moved;
}

function applyEvent(state, frame, now) {
  const moved = {
    ...state,
    cursor: { epoch: frame.epoch, seq: frame.seq },
    large: turn(state.large, frame, state.me),
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
  if (frame.message) return takeEntry(moved, frame.message);
  return moved; // a kind of a later version: the cursor moves on, the rest is not for us
}

function takeEntry(state, entry) {
  const known = state.chats.get(entry.chat);
  const isWatched = state.open === entry.chat && state.isWatched;
  const chat = receiveEntry(known ?? blankChat(entry.chat), entry, state.me, isWatched);
  const changed = {
    ...state,
    chats: withChat(state.chats, chat),
    turns: endTurn(state.turns, entry),
  };
  if (known === undefined) changed.needsList = true;
  if (entry.sender === state.me) changed.outbox = removeEntry(state.outbox, entry.ref);
  else if (isMessage(entry)) changed.typing = withoutTyping(state.typing, entry.chat, entry.sender);
  return changed;
}

/** A send was answered. The event puts the message in its place, unless nobody looks there. */
function ack(state, { frame }) {
  const entry = state.outbox.find((each) => each.ref === frame.ref);
  if (entry === undefined) return state;
  if (entry.deed) return ackDeed(state, entry, frame);
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
  // Its event went by unseen: fetch the place where the message is.
  if (seq <= loadedTop(chat)) return patchChat(changed, chat.id, { hole: holeAt(chat, seq) });
  return changed;
}

/** A change is committed. Until its event comes it is still shown from the outbox. */
function ackDeed(state, { ref, chat: id, deed }, frame) {
  const top = state.chats.get(id)?.top ?? 0;
  if (deed.kind !== "hide" && frame.seq > top) return patchEntry(state, ref, { status: "acked" });
  const changed = { ...state, outbox: removeEntry(state.outbox, ref) };
  if (deed.kind !== "hide") return changed;
  return mapChat(changed, id, (chat) => hideMessages(chat, [deed.target]));
}

function holeAt(chat, seq) {
  const after = Math.min(seq - 1, chat.hole?.after ?? Infinity);
  return { after, before: Math.max(seq + 1, chat.hole?.before ?? 0) };
}

function takeStored(state, { chat: id, upto }) {
  const changed = { ...state, unstored: dropStored(state.unstored, id, upto) };
  return mapChat(changed, id, (chat) => ({ ...chat, stored: Math.max(chat.stored, upto) }));
}

/** A page of history; it also takes out of the outbox what it proves to have been sent. */
function takePage(state, { chat: id, frame, want, before }) {
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

function withTurns(state, turns) {
  return turns === state.turns ? state : { ...state, turns };
}

function signal(state, { frame, now }) {
  if (frame.kind === "ai.delta") return withTurns(state, takePiece(state.turns, frame));
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
 * Take up what another life of this tab left behind. It does not know in which epoch that was, so
 * what was acked and not stored is offered again: under its ref that changes nothing.
 */
function restore(state, { outbox, unstored, drafts, facts, now }) {
  const waiting = withoutDeeds(outbox).filter((entry) => entry.status !== "acked");
  const again = offerAgain(requeue(waiting, now), unstored, now);
  return { ...state, outbox: again, unstored: [], drafts, facts };
}

/** Show a chat: the line before the unread messages is drawn where the user left off. */
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
