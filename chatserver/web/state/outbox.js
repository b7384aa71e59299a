// Outbox: messages and changes that the server has not confirmed yet.
//
// An entry: {ref, chat, body, replyTo, files, change, at, status, tried, seq, ts, error, retryAt}
//   files    attachments of a message, as the server described them
//   change   null for a message, else {kind: edit · delete · reaction · hide, target: seq}
//   queued   to be sent, as soon as the connection is open and `retryAt` has passed
//   sending  sent, without a reply yet
//   acked    committed; its event removes it from the outbox
//   failed   rejected, or too old to resend safely; the user decides
// One entry of a chat is in flight at a time, so that a retry never reorders messages.
// `ref` identifies the message: sending it twice is idempotent.
//
// `unstored` keeps acked messages until the warm tier has them: after a loss in Redis they are sent
// again with the same `ref`. Changes are not sent again: their target seq may be another message
// then.

export const REF_LIFE_MS = 12 * 3600 * 1000; // half of the time that the server remembers a ref
const UNCONFIRMED_MESSAGE =
  "Couldn't confirm delivery. If you try again, the message may appear twice.";
const UNCONFIRMED_CHANGE = "Couldn't confirm this change. Try again.";
const UNSTORED_MAX = 500;
const UNSTORED_CHATS_MAX = 100; // that `hello` takes

export function newEntry({ ref, chat, body, replyTo = null, files = [], change = null, at }) {
  return {
    ref,
    chat,
    body,
    replyTo,
    files,
    change,
    at,
    status: "queued",
    tried: false,
    seq: null,
    ts: null,
    error: null,
    retryAt: 0,
  };
}

/** True if the server may have committed the failed entry that has this error. */
export function isUnconfirmed(error) {
  return error === UNCONFIRMED_MESSAGE || error === UNCONFIRMED_CHANGE;
}

/** The entries that are messages. */
export function messageEntries(outbox) {
  return outbox.filter((entry) => !entry.change);
}

/** Change the entry with `ref`, if there is one. */
export function updateEntry(outbox, ref, change) {
  return outbox.map((entry) => (entry.ref === ref ? { ...entry, ...change } : entry));
}

export function removeEntry(outbox, ref) {
  return outbox.some((entry) => entry.ref === ref)
    ? outbox.filter((entry) => entry.ref !== ref)
    : outbox;
}

/** The entries to send now: the first open one of each chat, if `retryAt` has passed. */
export function sendable(outbox, now) {
  const busy = new Set();
  const ready = [];
  for (const entry of outbox) {
    if (busy.has(entry.chat) || entry.status === "acked" || entry.status === "failed") continue;
    busy.add(entry.chat);
    if (entry.status === "queued" && entry.retryAt <= now) ready.push(entry);
  }
  return ready;
}

/** When the next entry becomes sendable, or null. */
export function nextRetry(outbox) {
  const times = outbox.filter((e) => e.status === "queued" && e.retryAt > 0).map((e) => e.retryAt);
  return times.length > 0 ? Math.min(...times) : null;
}

/**
 * After a lost connection: queue entries without a reply again, with the same ref.
 *
 * An entry older than the server's memory of refs could become a duplicate: the user decides.
 */
export function requeue(outbox, now) {
  return outbox.map((entry) => {
    if (entry.status !== "sending" && !(entry.status === "queued" && entry.tried)) return entry;
    if (now - entry.at > REF_LIFE_MS) {
      const error = entry.change ? UNCONFIRMED_CHANGE : UNCONFIRMED_MESSAGE;
      return { ...entry, status: "failed", error };
    }
    return { ...entry, status: "queued", retryAt: 0 };
  });
}

/** Keep an acked message until it is stored. */
export function keepUnstored(unstored, entry, seq) {
  if (unstored.some((kept) => kept.ref === entry.ref)) return unstored;
  return [...unstored, { ...entry, seq }].slice(-UNSTORED_MAX);
}

/** Drop what the warm tier has stored. */
export function dropStored(unstored, chat, upto) {
  return unstored.filter((entry) => entry.chat !== chat || entry.seq > upto);
}

/** For `hello`: the chats with acked but unstored messages, and the newest seq of these. */
export function unstoredByChat(unstored) {
  const newest = new Map();
  for (const { chat, seq } of unstored) {
    const known = newest.get(chat) ?? 0;
    newest.delete(chat); // the latest chat is the last
    newest.set(chat, Math.max(seq, known));
  }
  return Object.fromEntries([...newest].slice(-UNSTORED_CHATS_MAX));
}

/** After Redis lost data: queue what it may have lost again, before newer messages. */
export function requeueUnstored(outbox, unstored, now) {
  const known = new Set(outbox.map((entry) => entry.ref));
  const again = unstored
    .filter((entry) => !known.has(entry.ref) && now - entry.at < REF_LIFE_MS)
    .map((entry) => ({ ...newEntry(entry), tried: true }));
  const rest = outbox.map((entry) =>
    entry.status === "acked" ? { ...entry, status: "queued", seq: null, ts: null } : entry,
  );
  return [...again, ...rest];
}

/** The request frame of an outbox entry. */
export function frameOf({ ref, chat, body, replyTo, files = [], change }) {
  if (!change) {
    const reply = replyTo ? { reply_to: replyTo } : {};
    const with_ = files.length > 0 ? { attachments: files.map((file) => file.id) } : {};
    return { type: "send", chat, ref, body, ...reply, ...with_ };
  }
  const target = { chat, seq: change.target, ref };
  if (change.kind === "edit") return { type: "edit", ...target, body };
  if (change.kind === "reaction") return { type: "react", ...target, emoji: body };
  return { type: "delete", ...target, for: change.kind === "hide" ? "me" : "all" };
}
