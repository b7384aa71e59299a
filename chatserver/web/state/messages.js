// The loaded entries of one chat: a window that ends at the newest one.
//
// Invariants: `messages` is sorted by seq, has no gap except the hole, and holds all kinds of
// entries; `older` describes what precedes it; a `hole` is a range of seqs inside the window that is
// not loaded yet. Changes after the hole are applied once it is filled, because changes apply in
// order. All functions return a new chat and do not modify the old one.

import { applyEntry, isAmending, isMessage, newerCopy, tombstoneOf } from "./changes.js";

const QUIET_MAX = 500;
const KEEP_WHEN_LEFT = 60;
const KEEP_AT_BOTTOM = 200;

/** A chat of which only the id is known. */
export function blankChat(id) {
  return {
    id,
    kind: kindOf(id),
    name: null,
    members: [],
    isEnded: false, // an ended companion session: read-only
    isStub: true, // only events were seen, no summary
    top: 0, // newest seq known to exist
    last: null, // newest message, for the list
    listed: null, // the server's count: {read, top, unread}
    quiet: [], // known seqs after `read` that do not count as unread
    read: 0, // own read mark; everything after it is unread
    marks: new Map(), // user → {read, received} of the other members
    stored: 0, // all up to here are known to be in the warm tier
    activity: 0, // µs, orders the list
    messages: [],
    older: "unknown", // unknown: nothing loaded yet · more · none
    loading: null, // what is being loaded: newest · older · hole
    trouble: null, // why the last load failed, in words
    hole: null, // {after, before}
    divider: null, // own read mark when unread messages were first shown
  };
}

/** The kind of chat by its id; a companion session has a ULID. */
function kindOf(id) {
  if (id.startsWith("g-")) return "group";
  return /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/u.test(id) ? "companion" : "direct";
}

/** Index of the first message whose seq is at least `seq`. */
function findIndex(messages, seq) {
  let low = 0;
  let high = messages.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (messages[middle].seq < seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The loaded message at `seq`, or null. */
export function findMessage(chat, seq) {
  const message = chat.messages[findIndex(chat.messages, seq)];
  return message?.seq === seq ? message : null;
}

/** The seq of the newest loaded message, 0 without any. */
export function loadedTop(chat) {
  return chat.messages.at(-1)?.seq ?? 0;
}

/** Merge two lists sorted by seq; if both have a seq, the newer copy wins. */
function mergeMessages(ours, theirs) {
  if (theirs.length === 0) return ours;
  if (ours.length === 0 || theirs[0].seq > ours.at(-1).seq) return [...ours, ...theirs];
  if (theirs.at(-1).seq < ours[0].seq) return [...theirs, ...ours];
  const bySeq = new Map(theirs.map((message) => [message.seq, message]));
  for (const message of ours) {
    const other = bySeq.get(message.seq);
    bySeq.set(message.seq, other === undefined ? message : newerCopy(message, other));
  }
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq);
}

/** Add an entry of an event. A skipped seq opens a hole. */
export function addEntry(chat, entry) {
  const changed = { ...chat, top: Math.max(chat.top, entry.seq) };
  if (!isMessage(entry)) {
    changed.quiet = withQuiet(chat, [entry]);
    if (entry.kind === "delete" && entry.seq > (chat.listed?.top ?? 0)) {
      changed.listed = withoutUnread(chat, [entry.target]);
    }
  } else if (chat.last === null || entry.seq > chat.last.seq) {
    changed.last = entry;
    changed.activity = Math.max(chat.activity, entry.ts);
  }
  if (chat.older === "unknown") {
    const isOfLast = isAmending(entry) && chat.last?.seq === entry.target;
    return isOfLast ? { ...changed, last: applyEntry(chat.last, entry) } : changed;
  }
  const end = loadedTop(chat);
  if (entry.seq > end + 1) changed.hole = widen(chat.hole, end, entry.seq);
  changed.messages = mergeMessages(chat.messages, [entry]);
  return withChanges(changed);
}

/** Apply the loaded changes to their messages; idempotent. */
function withChanges(chat) {
  const upto = chat.hole?.after ?? Infinity;
  const messages = [...chat.messages];
  for (const entry of chat.messages) {
    if (entry.seq > upto) break;
    if (!isAmending(entry)) continue;
    const at = findIndex(messages, entry.target);
    if (messages[at]?.seq === entry.target) messages[at] = applyEntry(messages[at], entry);
  }
  const newest = messages.findLast(isMessage);
  const isNewer = newest !== undefined && newest.seq >= (chat.last?.seq ?? 0);
  return { ...chat, messages, last: isNewer ? newest : chat.last };
}

/** Seqs that an entry excludes from the unread count: its own, and that of a deleted message. */
function quietSeqs(entry) {
  if (entry.kind === "delete") return [entry.seq, entry.target];
  return isMessage(entry) && !entry.deleted ? [] : [entry.seq];
}

function withQuiet(chat, entries) {
  return addQuiet(chat, entries.flatMap(quietSeqs));
}

function addQuiet(chat, seqs) {
  const known = new Set([...chat.quiet, ...seqs]);
  return [...known].filter((seq) => seq > chat.read).slice(-QUIET_MAX);
}

/** The server's count without messages that were deleted after it was made. */
function withoutUnread(chat, seqs) {
  if (chat.listed === null) return null;
  const { read, top, unread } = chat.listed;
  const known = new Set(chat.quiet);
  const gone = new Set(seqs.filter((seq) => seq > read && seq <= top && !known.has(seq)));
  return { read, top, unread: Math.max(0, unread - gone.size) };
}

/** Show messages as deleted that the user deleted for themselves. */
export function hideMessages(chat, seqs) {
  const gone = new Set(seqs);
  const hide = (message) =>
    message !== null && gone.has(message.seq) ? tombstoneOf(message) : message;
  const listed = withoutUnread(chat, seqs);
  const quiet = addQuiet(chat, seqs);
  return { ...chat, listed, quiet, last: hide(chat.last), messages: chat.messages.map(hide) };
}

/** The seq that is seen with the message at `seq`: includes the non-messages right after it. */
export function seenWith(chat, seq) {
  let upto = seq;
  for (let at = findIndex(chat.messages, seq + 1); at < chat.messages.length; at += 1) {
    const entry = chat.messages[at];
    if (isMessage(entry) || entry.seq !== upto + 1) break;
    upto = entry.seq;
  }
  return upto;
}

function widen(hole, after, before) {
  if (hole === null) return { after, before };
  return { after: Math.min(hole.after, after), before: Math.max(hole.before, before) };
}

/**
 * Add a page of history.
 *
 * `want` is what was requested: `newest`, `hole`, or `older`: the messages before `before`.
 */
export function addPage(chat, page, want, before = null) {
  const found = [...page.messages].sort((a, b) => a.seq - b.seq);
  const changed = { ...chat, trouble: null, loading: null };
  // The window was trimmed meanwhile: the page is not adjacent anymore.
  if (want === "older" && chat.messages[0]?.seq !== before) return changed;
  const isSeparate = want === "newest" && found.length > 0 && found[0].seq > loadedTop(chat) + 1;
  changed.messages = isSeparate ? found : mergeMessages(chat.messages, found);
  if (want === "hole") changed.hole = narrow(chat.hole, found, page.more);
  else changed.older = page.more && changed.messages[0]?.seq > 1 ? "more" : "none";
  if (want === "newest") changed.hole = holeAtEnd(changed, isSeparate ? null : chat.hole);
  changed.stored = Math.max(chat.stored, page.stored ?? 0);
  changed.top = Math.max(chat.top, loadedTop(changed));
  changed.quiet = withQuiet(chat, found);
  return withChanges(changed);
}

/** The hole for events that arrived while the page was loading. */
function holeAtEnd(chat, hole) {
  const end = loadedTop(chat);
  return chat.top > end ? widen(hole, end, chat.top + 1) : hole;
}

/** The rest of a hole after a page. What the server does not have is not requested again. */
function narrow(hole, found, more) {
  if (hole === null) return null;
  const end = found.at(-1)?.seq ?? 0;
  const isFilled = end + 1 >= hole.before || found.length === 0 || !more || end <= hole.after;
  return isFilled ? null : { after: end, before: hole.before };
}

/** Drop old messages of a chat; scrolling loads them again. */
export function trimMessages(chat, isOpen) {
  const keep = isOpen ? KEEP_AT_BOTTOM : KEEP_WHEN_LEFT;
  if (chat.messages.length <= keep * 1.5) return chat;
  return { ...chat, messages: chat.messages.slice(-keep), older: "more" };
}

/** Drop the loaded messages: they may be of another epoch or have unknown holes. */
export function dropMessages(chat) {
  return { ...chat, messages: [], older: "unknown", loading: null, trouble: null, hole: null };
}
