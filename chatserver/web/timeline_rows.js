// Rows of the timeline, top to bottom, as plain objects. Pure.
//
// Each row has a stable `key`, so that a message keeps its element from composing to read receipt:
// messages are keyed by ref, which the outbox knows before there is a seq.

import { dayLabel, dayOf, fullTime, oneLine, plural } from "./format.js";
import { applyEntry, countReactions, isAmending, isMessage } from "./state/changes.js";
import { shownText } from "./state/expiry.js";
import { findMessage } from "./state/messages.js";
import { isUnconfirmed, messageEntries } from "./state/outbox.js";
import { findResponse } from "./state/ai_responses.js";
import { chatTitle, entryMark, markOf, readersOf, typingUsers } from "./selectors.js";

const GROUP_MS = 5 * 60_000;
const NO_QUOTE = { quoteOf: null, quoteFrom: null, quoteText: null };

/** The rows of the open chat. */
export function timelineRows(state, chat, now) {
  const rows = [headRow(state, chat)];
  let previous = null; // the message that the next one may continue
  let lastDay = null;
  let isDivided = chat.divider === null;
  for (const item of itemsOf(state, chat)) {
    const day = dayOf(item.at);
    if (day !== lastDay) {
      rows.push({ key: `day:${day}`, type: "day", label: dayLabel(item.at, now) });
      previous = null;
    }
    lastDay = day;
    if (item.type === "system") {
      rows.push(item);
      previous = null;
      continue;
    }
    if (!isDivided && item.seq !== null && item.seq > chat.divider) {
      rows.push({ key: "unread", type: "unread" });
      isDivided = true;
      previous = null;
    }
    const continues =
      previous !== null && previous.sender === item.sender && item.at - previous.at < GROUP_MS;
    if (previous !== null && continues) previous.isLast = false;
    const row = { ...item, isFirst: !continues, isLast: true };
    // A companion replies to the message right above: no quote needed.
    if (chat.kind === "companion" && previous !== null && row.quoteOf === previous.seq) {
      Object.assign(row, NO_QUOTE);
    }
    rows.push(row);
    previous = row;
  }
  for (const row of rows) if (row.type === "message") showFoot(row);
  const answer = findResponse(state.responses, chat);
  if (answer !== null) rows.push(answerRow(answer, chatTitle(chat, state.me)));
  const typing = typingUsers(state, chat.id);
  if (typing.length > 0) rows.push({ key: "typing", type: "typing", users: typing.join(" ") });
  return makeKeysUnique(rows);
}

/** The response in progress of a companion. */
function answerRow({ turn, text, end, tool }, name) {
  return { key: `a:${turn}`, type: "answer", text, name, tool, isOver: end !== null };
}

/** The row above the first message: beginning of the chat, loading, or a load error. */
function headRow(state, chat) {
  if (chat.trouble !== null) return { key: "head", type: "trouble", text: chat.trouble };
  if (chat.older === "none") {
    const title = chatTitle(chat, state.me);
    const isWriting = messageEntries(state.outbox).some((entry) => entry.chat === chat.id);
    const isEmpty = !chat.messages.some(isMessage) && !isWriting;
    return { key: "head", type: "beginning", title, kind: chat.kind, id: chat.id, isEmpty };
  }
  return { key: "head", type: "loading" };
}

function* itemsOf(state, chat) {
  const acked = [];
  const waiting = [];
  const changes = new Map(); // seq of a message → its pending changes
  for (const entry of state.outbox) {
    if (entry.chat !== chat.id) continue;
    if (entry.change) {
      changes.set(entry.change.target, [...(changes.get(entry.change.target) ?? []), entry]);
      continue;
    }
    (entry.status === "acked" ? acked : waiting).push(entry);
  }
  const roles = new Map();
  for (const entry of chat.messages) {
    if (isAmending(entry)) continue;
    if (isMessage(entry)) {
      if (!roles.get(entry.sender)) roles.set(entry.sender, "member"); // a sender is a member
      yield messageItem(chat, entry, state, changes.get(entry.seq) ?? []);
    } else if (entry.kind !== "unpin") yield { key: `s:${entry.seq}`, type: "system", ...systemItem(entry, state.me, roles) };
  }
  acked.sort((a, b) => a.seq - b.seq);
  for (const entry of [...acked, ...waiting]) yield entryItem(chat, entry, state.me);
}

const MUTE_OVER = 1; // a time long ago: unmuted

const SPANS = [
  [86_400, "day"],
  [3_600, "hour"],
  [60, "minute"],
  [1, "second"],
];

/** A system message. `roles`: user → role, from the entries before. */
function systemItem(entry, me, roles) {
  const text = systemText(entry, me, roles);
  if (entry.kind === "member") roles.set(entry.user, entry.role ?? "");
  return { seq: entry.seq, at: entry.ts / 1000, text };
}

function systemText(entry, me, roles) {
  if (entry.kind === "pin") return `${entry.sender === me ? "You" : entry.sender} pinned a message`;
  if (entry.kind === "update") return updateText(entry, me);
  return memberText(entry, me, roles.get(entry.user));
}

function updateText({ sender, name, body }, me) {
  const who = sender === me ? "You" : sender;
  // Isolates: a right-to-left name must not reorder the sentence.
  if (name) return `${who} named the group \u2068${name}\u2069`;
  const slowS = /^\{"slow_s":(\d{1,6})\}$/u.exec(body)?.[1];
  if (slowS === "0") return `${who} turned off slow mode`;
  if (slowS) return `${who} turned on slow mode: one message every ${durationText(Number(slowS))}`;
  const retentionS = /^\{"retention_s":(\d{1,9})\}$/u.exec(body)?.[1];
  if (retentionS === "0") return `${who} turned off disappearing messages`;
  if (retentionS) return `${who} set new messages to disappear after ${durationText(Number(retentionS))}`;
  return `${who} changed the group’s settings`;
}

/** A duration in words, in the largest unit that divides it. */
export function durationText(seconds) {
  const [unit, name] = SPANS.find(([each]) => seconds % each === 0);
  const count = seconds / unit;
  return plural(count, name);
}

function memberText({ sender, user, role = "", muted_until: until, banned }, me, before) {
  const who = sender === me ? "You" : sender;
  const isSelf = sender === user;
  const whom = user === me ? "you" : user;
  if (banned) return `${who} banned ${whom}`;
  if (until !== undefined) {
    if (until === MUTE_OVER) return `${who} unmuted ${whom}`;
    return `${who} muted ${whom}${until === 0 ? "" : ` until ${fullTime(until * 1000)}`}`;
  }
  if (role === "" && isSelf) return `${who} left`;
  if (role === "") return `${who} removed ${whom}`;
  if (role === "owner") return isSelf ? `${who} became the owner` : `${who} made ${whom} the owner`;
  if (role === "admin") return isSelf ? `${who} became an admin` : `${who} made ${whom} an admin`;
  if (isSelf) return `${who} joined`;
  const wasMore = before === "admin" || before === "owner";
  if (!wasMore) return `${who} added ${whom}`;
  return `${who} changed ${user === me ? "your" : `${user}’s`} role to member`;
}

/** A message with its pending changes applied. */
function withPendingChanges(message, changes, me) {
  const open = changes.filter((entry) => entry.status !== "failed");
  return open.reduce((shown, { change, body, at }) => {
    const kind = change.kind === "hide" ? "delete" : change.kind;
    return applyEntry(shown, { kind, body, sender: me, seq: (shown.rev ?? 0) + 1, ts: at * 1000 });
  }, message);
}

/** Notes for companion messages that did not end normally. */
const ENDS = new Map([
  ["stopped", "stopped"],
  ["length", "truncated"],
  ["broken", "interrupted"],
  ["late", "interrupted"],
]);

function messageItem(chat, stored, { me }, changes) {
  const message = withPendingChanges(stored, changes, me);
  const own = message.sender === me;
  const isGroup = chat.kind === "group";
  const failed = changes.find((entry) => entry.status === "failed");
  const isChanging = changes.some(({ change, status }) => change.kind === "edit" && status !== "failed");
  return {
    key: `m:${message.sender}:${message.ref}`,
    type: "message",
    own,
    isGroup,
    seq: message.seq,
    at: message.ts / 1000,
    sender: message.sender,
    name: nameOf(chat, message.sender, me),
    note: ENDS.get(message.ai?.end) ?? "",
    body: message.deleted ? shownText(message) : message.body,
    files: filesOf(message.deleted ? [] : (message.attachments ?? [])),
    isGone: message.deleted === true,
    isEdited: message.edited_ts !== undefined && !message.deleted,
    reactions: reactionsOf(message, me),
    mark: own ? (isChanging ? "sending" : markOf(chat, message.seq, me)) : null,
    readers: own && isGroup ? readersOf(chat, message.seq, me).join(" ") : "",
    error: failed === undefined ? null : errorText("Not changed.", failed.error),
    troubleRef: failed?.ref ?? null,
    ref: message.ref,
    ...quoteOf(chat, message.reply_to ?? null, me),
  };
}

/** The display name of a sender: companions have a name besides their id. */
function nameOf(chat, user, me) {
  return chat.kind === "companion" && user !== me ? chatTitle(chat, me) : user;
}

/** As JSON, so that rows can be compared. */
function filesOf(files) {
  return files.length === 0 ? "" : JSON.stringify(files);
}

/** As JSON, so that rows can be compared: `[[emoji, own, names], …]`. */
function reactionsOf(message, me) {
  const counted = countReactions(message);
  if (counted.length === 0) return "";
  const line = ({ emoji, users }) => {
    const isOwn = users.includes(me);
    const others = users.filter((user) => user !== me);
    return [emoji, isOwn, isOwn ? [...others, "you"] : others];
  };
  return JSON.stringify(counted.map(line));
}

function entryItem(chat, entry, me) {
  return {
    key: `m:${me}:${entry.ref}`,
    type: "message",
    own: true,
    isGroup: chat.kind === "group",
    seq: entry.seq,
    at: entry.ts === null ? entry.at : entry.ts / 1000,
    sender: me,
    name: me,
    note: "",
    body: entry.body,
    files: filesOf(entry.files ?? []),
    isGone: false,
    isEdited: false,
    reactions: "",
    mark: entryMark(entry),
    readers: "",
    error: entry.error === null ? null : errorText("Not sent.", entry.error),
    troubleRef: entry.ref,
    ref: entry.ref,
    ...quoteOf(chat, entry.replyTo, me),
  };
}

function errorText(outcome, error) {
  return isUnconfirmed(error) ? error : `${outcome} ${error}`;
}

function quoteOf(chat, seq, me) {
  if (seq === null) return NO_QUOTE;
  const quoted = findMessage(chat, seq);
  return {
    quoteOf: seq,
    quoteFrom: quoted === null ? null : nameOf(chat, quoted.sender, me),
    quoteText: quoted === null ? "An earlier message" : oneLine(shownText(quoted)),
  };
}

/** Time and status are shown at the end of a group, and for edited, failed and pending messages. */
function showFoot(row) {
  row.hasFoot = row.isLast || row.isEdited || row.note !== "" || row.mark === "failed" || row.mark === "sending";
}

/** Make duplicate keys unique, whatever the server sends. */
function makeKeysUnique(rows) {
  const seen = new Set();
  for (const row of rows) {
    if (seen.has(row.key)) row.key = `${row.key}:${row.seq ?? row.at}`;
    seen.add(row.key);
  }
  return rows;
}

/** Return whether two rows are drawn the same. */
export function isSameRow(a, b) {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}
