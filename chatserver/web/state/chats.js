// The chats of the user: what a summary, a chat event and a read mark change.
// `chats` is a Map, because "__proto__" and "constructor" are good ids.

import { isMessage, newerCopy } from "./changes.js";
import { addEntry, blankChat, dropMessages, loadedTop } from "./messages.js";

/** Return `chats` with one of them replaced. */
export function withChat(chats, chat) {
  if (chats.get(chat.id) === chat) return chats;
  return new Map(chats).set(chat.id, chat);
}

/**
 * Take a page of the chat list.
 *
 * The page and the events travel side by side, so either may know more than the other: the newest
 * message and the furthest mark win. `facts` (chat → {stored, marks}) is what an earlier life of
 * the page knew and no summary tells.
 */
export function mergeSummaries(chats, summaries, facts = new Map()) {
  const merged = new Map(chats);
  let below = Infinity; // the server sorts by activity: a chat without a message keeps its place
  for (const summary of summaries) {
    const id = summary.chat;
    const chat = mergeSummary(merged.get(id) ?? { ...blankChat(id), ...facts.get(id) }, summary);
    if (chat.last === null && chat.activity === 0) {
      chat.activity = below === Infinity ? 1 : Math.max(1, below - 1);
    }
    below = chat.activity;
    merged.set(id, chat);
  }
  return merged;
}

function mergeSummary(chat, summary) {
  const { top = 0, read = 0, last = null } = summary;
  const changed = { ...withInfo(chat, summary), isStub: false };
  changed.top = Math.max(chat.top, top);
  changed.read = Math.max(chat.read, read);
  if (last === null) {
    if (top > chat.top) changed.last = null; // there is a newer one that nobody told of
  } else if (isMessage(last) && last.seq >= (chat.last?.seq ?? 0)) {
    changed.last = last.seq === chat.last?.seq ? newerCopy(chat.last, last) : last;
    changed.activity = Math.max(chat.activity, last.ts);
  }
  if (read === changed.read && top >= (chat.listed?.top ?? 0)) {
    changed.listed = { read, top, unread: summary.unread ?? 0 };
  }
  if (summary.peer) changed.marks = withMark(chat.marks, summary.peer);
  // What was loaded lacks what came since: load again when the chat is looked at.
  const isBehind = chat.older !== "unknown" && top > loadedTop(chat);
  return isBehind ? dropMessages(changed) : changed;
}

/**
 * Start over from a snapshot: only marks outlive it, for they never move back.
 *
 * In a new epoch the place of a lost message may be another's: what is read there is not known.
 */
export function replaceChats(chats, summaries, isNewEpoch) {
  const kept = new Map();
  for (const { chat: id } of summaries) {
    const old = chats.get(id);
    if (old === undefined) continue;
    const { read, marks, stored, divider } = old;
    const facts = isNewEpoch ? { stored } : { read, marks, stored, divider };
    kept.set(id, { ...blankChat(id), ...facts });
  }
  return mergeSummaries(kept, summaries);
}

function withInfo(chat, info) {
  const { kind, name = null, members = [], ended: isEnded = false } = info;
  return { ...chat, kind, name, members, isEnded: isEnded || chat.isEnded };
}

/** Take a chat that is new or has changed. */
export function addInfo(chats, info, nowUs) {
  const chat = chats.get(info.chat) ?? blankChat(info.chat);
  const changed = { ...withInfo(chat, info), isStub: false };
  if (changed.activity === 0) changed.activity = nowUs;
  return withChat(chats, changed);
}

function withMark(marks, { user, read = 0, received = 0 }) {
  const old = marks.get(user) ?? { read: 0, received: 0 };
  if (read <= old.read && received <= old.received) return marks;
  return new Map(marks).set(user, {
    read: Math.max(old.read, read),
    received: Math.max(old.received, received),
  });
}

/** Take how far a member has read; the user's own mark may come from another device. */
export function addMarks(chat, marks, me) {
  if (marks.user !== me) return { ...chat, marks: withMark(chat.marks, marks) };
  return readUpto(chat, marks.read ?? 0);
}

/** Move the user's own read mark forward. */
export function readUpto(chat, seq) {
  if (seq <= chat.read) return chat;
  return { ...chat, read: seq, quiet: chat.quiet.filter((each) => each > seq) };
}

/**
 * How many messages are unread.
 *
 * Who writes has read what stands before, so all that stands after the mark is from others. What
 * is known to be no message does not count. Up to where the server last listed the chat, it has
 * counted.
 */
export function unreadOf(chat) {
  const top = Math.min(chat.top, chat.last?.seq ?? Infinity);
  const isCounted = chat.listed !== null && chat.listed.read === chat.read;
  const after = isCounted ? chat.listed.top : chat.read;
  const quiet = chat.quiet.filter((seq) => seq > after && seq <= top);
  const newer = Math.max(0, top - after - quiet.length);
  return isCounted ? chat.listed.unread + newer : newer;
}

/**
 * Take an entry of an event, and note where the unread messages begin.
 *
 * An entry that is already there changes nothing, however often it comes. The server moves the
 * mark of a message's sender without an event of its own.
 */
export function receiveEntry(chat, entry, me, isWatched) {
  const isNew = entry.seq > chat.top;
  const isInWindow = entry.seq >= (chat.messages[0]?.seq ?? 1);
  if (!isNew && (chat.older === "unknown" || !isInWindow)) return chat;
  const changed = isNew ? withNews(addEntry(chat, entry), entry) : addEntry(chat, entry);
  if (!isMessage(entry)) return changed;
  if (entry.sender === me) return readUpto(changed, entry.seq);
  changed.marks = withMark(chat.marks, { user: entry.sender, read: entry.seq });
  const isUnread = isNew && entry.seq > chat.read;
  if (isUnread && !isWatched && chat.divider === null) changed.divider = chat.read;
  return changed;
}

/** Take what an entry says of the chat itself. */
function withNews(chat, entry) {
  if (entry.kind === "update" && entry.name) return { ...chat, name: entry.name };
  if (entry.kind !== "member" || chat.members.length === 0) return chat; // a large one names nobody
  const others = chat.members.filter((user) => user !== entry.user);
  return { ...chat, members: entry.role ? [...others, entry.user].sort() : others };
}
