// The chat list: merges summaries, chat events and read marks.
// `chats` is a Map, because "__proto__" and "constructor" are valid ids.

import { isMessage, newerCopy } from "./changes.js";
import { addEntry, blankChat, dropMessages, loadedTop } from "./messages.js";

/** Return `chats` with one of them replaced. */
export function withChat(chats, chat) {
  if (chats.get(chat.id) === chat) return chats;
  return new Map(chats).set(chat.id, chat);
}

/**
 * Merge a page of the chat list.
 *
 * The page and the events arrive concurrently, so either may be newer: the newest message and the
 * furthest mark win. `facts` (chat → {stored, marks}) was saved before a reload; summaries do not
 * contain it.
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
    if (top > chat.top) changed.last = null; // there is a newer one, not yet received
  } else if (isMessage(last) && last.seq >= (chat.last?.seq ?? 0)) {
    changed.last = last.seq === chat.last?.seq ? newerCopy(chat.last, last) : last;
    changed.activity = Math.max(chat.activity, last.ts);
  }
  if (read === changed.read && top >= (chat.listed?.top ?? 0)) {
    changed.listed = { read, top, unread: summary.unread ?? 0 };
  }
  if (summary.peer) changed.marks = withMark(chat.marks, summary.peer);
  // The loaded messages are outdated: load again when the chat is opened.
  const isBehind = chat.older !== "unknown" && top > loadedTop(chat);
  return isBehind ? dropMessages(changed) : changed;
}

/**
 * Replace all chats by a snapshot; marks are kept, as they never move back.
 *
 * In a new epoch a seq may belong to another message, so read marks are dropped.
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

/** Add or update a chat. */
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

/** Apply a read mark; the user's own may come from another device. */
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
 * The number of unread messages.
 *
 * A sender has read everything before their message, so all after the mark is from others. Entries
 * that are not messages do not count. Up to the last summary, the server's count applies.
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
 * Add an entry of an event, and set the divider of unread messages.
 *
 * Idempotent. A message moves the read mark of its sender, for which there is no separate event.
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

/** Apply a change of name or members. */
function withNews(chat, entry) {
  if (entry.kind === "update" && entry.name) return { ...chat, name: entry.name };
  if (entry.kind !== "member" || chat.members.length === 0) return chat; // large chats list no members
  const others = chat.members.filter((user) => user !== entry.user);
  return { ...chat, members: entry.role ? [...others, entry.user].sort() : others };
}
