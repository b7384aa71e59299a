// What the user wrote and the server does not have for certain yet.
//
// An entry: {ref, chat, body, replyTo, files, deed, at, status, tried, seq, ts, error, retryAt}
//   files    attachments of a message, as the server described them
//   deed     null for a message, else {kind: edit · delete · reaction · hide, target: seq}
//   queued   to be sent, as soon as the connection is open and `retryAt` has passed
//   sending  sent, not answered
//   acked    committed; its event is on the way and takes it out of the outbox
//   failed   refused, or too old to send again safely; the user decides
// One entry of a chat is in flight at a time, so that a retry never overtakes what was written
// later. `ref` names the message for ever: sending it twice is sending it once.
//
// `unstored` keeps what was acked until the warm tier has it: a Redis that went back in time gets
// it again under the same `ref`. Deeds are not offered again: the place that they name may be
// another message's there.

export const REF_LIFE_MS = 12 * 3600 * 1000; // the server knows a ref for a day; half is safe
const UNSTORED_MAX = 500;
const UNSTORED_CHATS_MAX = 100; // that `hello` takes

export function newEntry({ ref, chat, body, replyTo = null, files = [], deed = null, at }) {
  return {
    ref,
    chat,
    body,
    replyTo,
    files,
    deed,
    at,
    status: "queued",
    tried: false,
    seq: null,
    ts: null,
    error: null,
    retryAt: 0,
  };
}

/** The entries that are messages. */
export function withoutDeeds(outbox) {
  return outbox.filter((entry) => !entry.deed);
}

/** Change the entry that `ref` names; an unknown ref changes nothing. */
export function updateEntry(outbox, ref, change) {
  return outbox.map((entry) => (entry.ref === ref ? { ...entry, ...change } : entry));
}

export function removeEntry(outbox, ref) {
  return outbox.some((entry) => entry.ref === ref)
    ? outbox.filter((entry) => entry.ref !== ref)
    : outbox;
}

/** The entries that may be sent now: the first open one of each chat, if its time has come. */
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
 * After a connection was lost: what was sent and not answered is sent again, with the same ref.
 *
 * A try that is older than the server's memory of refs might become a second message: the user is
 * asked instead.
 */
export function requeue(outbox, now) {
  return outbox.map((entry) => {
    if (entry.status !== "sending" && !(entry.status === "queued" && entry.tried)) return entry;
    if (now - entry.at > REF_LIFE_MS) {
      return { ...entry, status: "failed", error: "Nobody knows whether this was sent." };
    }
    return { ...entry, status: "queued", retryAt: 0 };
  });
}

/** Remember an acked message until it is stored. */
export function keepUnstored(unstored, entry, seq) {
  if (unstored.some((kept) => kept.ref === entry.ref)) return unstored;
  return [...unstored, { ...entry, seq }].slice(-UNSTORED_MAX);
}

/** Forget what the warm tier has. */
export function dropStored(unstored, chat, upto) {
  return unstored.filter((entry) => entry.chat !== chat || entry.seq > upto);
}

/** For `hello`: the chats with acked messages that are not stored, and the newest seq of these. */
export function unstoredByChat(unstored) {
  const newest = new Map();
  for (const { chat, seq } of unstored) {
    const known = newest.get(chat) ?? 0;
    newest.delete(chat); // the latest chat is the last
    newest.set(chat, Math.max(seq, known));
  }
  return Object.fromEntries([...newest].slice(-UNSTORED_CHATS_MAX));
}

/** The hot tier was rebuilt: offer again what it may have lost, before what came after. */
export function offerAgain(outbox, unstored, now) {
  const known = new Set(outbox.map((entry) => entry.ref));
  const again = unstored
    .filter((entry) => !known.has(entry.ref) && now - entry.at < REF_LIFE_MS)
    .map((entry) => ({ ...newEntry(entry), tried: true }));
  const rest = outbox.map((entry) =>
    entry.status === "acked" ? { ...entry, status: "queued", seq: null, ts: null } : entry,
  );
  return [...again, ...rest];
}

/** What the server is asked for an entry of the outbox. */
export function frameOf({ ref, chat, body, replyTo, files = [], deed }) {
  if (!deed) {
    const reply = replyTo ? { reply_to: replyTo } : {};
    const with_ = files.length > 0 ? { attachments: files.map((file) => file.id) } : {};
    return { type: "send", chat, ref, body, ...reply, ...with_ };
  }
  const change = { chat, seq: deed.target, ref };
  if (deed.kind === "edit") return { type: "edit", ...change, body };
  if (deed.kind === "reaction") return { type: "react", ...change, emoji: body };
  return { type: "delete", ...change, for: deed.kind === "hide" ? "me" : "all" };
}
