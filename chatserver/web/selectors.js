// Selectors: values that the views derive from the state. Pure.

import { isCompanion, nameList, oneLine } from "./format.js";
import { unreadOf } from "./state/chats.js";
import { fileNames, shownText } from "./state/expiry.js";
import { messageEntries } from "./state/outbox.js";

/** The peer of a direct chat; the user themselves in a chat with themselves. */
export function peerOf(chat, me) {
  return chat.members.find((member) => member !== me) ?? chat.members[0] ?? "unknown";
}

/** The title of a chat. */
export function chatTitle(chat, me) {
  if (chat.kind === "direct") return peerOf(chat, me);
  if (chat.kind === "companion") return chat.name ?? peerOf(chat, me);
  if (chat.name) return chat.name;
  const others = chat.members.filter((member) => member !== me);
  return others.length > 0 ? nameList(others, 3) : "Group"; // large chats list no members
}

/** The chats, most recent activity first. Messages in the outbox count as activity. */
export function listChats(state) {
  const pending = new Map();
  for (const entry of messageEntries(state.outbox)) pending.set(entry.chat, entry.at * 1000);
  const when = (chat) => Math.max(chat.activity, pending.get(chat.id) ?? 0);
  return [...state.chats.values()]
    .filter((chat) => !chat.isStub)
    .sort((a, b) => when(b) - when(a) || (a.id < b.id ? -1 : 1));
}

/** The chats whose name or members contain `query`. */
export function filterChats(chats, query, me) {
  const wanted = query.trim().toLowerCase();
  if (wanted === "") return chats;
  return chats.filter((chat) => {
    const names = chat.kind === "group" ? chat.members : [peerOf(chat, me)];
    return [chatTitle(chat, me), ...names].some((name) => name.toLowerCase().includes(wanted));
  });
}

/** All users who share a chat with the user, for suggestions. */
export function knownPeople(state) {
  const people = new Set();
  for (const chat of listChats(state)) for (const member of chat.members) people.add(member);
  people.delete(state.me);
  return [...people].filter((user) => !isCompanion(user));
}

export function unreadTotal(state) {
  let total = 0;
  for (const chat of state.chats.values()) total += unreadOf(chat);
  return total;
}

/** The users who are typing in a chat. */
export function typingUsers(state, id) {
  return [...(state.typing.get(id)?.keys() ?? [])];
}

export function typingText(users) {
  if (users.length === 0) return "";
  return `${nameList(users, 2)} ${users.length === 1 ? "is" : "are"} typing…`;
}

/** The users, other than the sender, who have read a message. */
export function readersOf(chat, seq, me) {
  return chat.members.filter((user) => user !== me && (chat.marks.get(user)?.read ?? 0) >= seq);
}

/** The delivery status of an own message: sent, stored or read. */
export function markOf(chat, seq, me) {
  for (const [user, mark] of chat.marks) if (user !== me && mark.read >= seq) return "read";
  return seq <= chat.stored ? "stored" : "sent";
}

const STATUS_MARKS = { queued: "sending", sending: "sending", acked: "sent", failed: "failed" };

/** The delivery status of an outbox entry. */
export function entryMark(entry) {
  return STATUS_MARKS[entry.status];
}

function entryText({ body, files = [] }) {
  return body || fileNames(files);
}

/** The second line of a chat in the list: `{kind, who, text, mark, at}`. `at` in ms. */
export function preview(state, chat) {
  const typing = typingUsers(state, chat.id);
  const draft = chat.id === state.open ? undefined : state.drafts.get(chat.id);
  const entry = messageEntries(state.outbox).findLast((each) => each.chat === chat.id);
  const at = entry?.at ?? (chat.last ? chat.last.ts / 1000 : null);
  if (typing.length > 0) {
    const text = chat.kind === "group" ? typingText(typing) : "typing…";
    return { kind: "typing", who: null, text, mark: null, at };
  }
  if (draft !== undefined) {
    return { kind: "draft", who: "Draft", text: oneLine(draft), mark: null, at };
  }
  if (entry !== undefined) {
    return { kind: "own", who: null, text: oneLine(entryText(entry)), mark: entryMark(entry), at };
  }
  if (chat.last === null)
    return { kind: "empty", who: null, text: "No messages yet", mark: null, at };
  const isOwn = chat.last.sender === state.me;
  const text = oneLine(shownText(chat.last));
  if (isOwn) {
    return { kind: "own", who: null, text, mark: markOf(chat, chat.last.seq, state.me), at };
  }
  return {
    kind: "other",
    who: chat.kind === "group" ? chat.last.sender : null,
    text,
    mark: null,
    at,
  };
}

/** Return whether missed events are still arriving. */
export function isCatchingUp(state) {
  const { cursor, head, link } = state;
  return link.status === "open" && cursor !== null && head !== null && cursor.seq < head.seq;
}
