// Changes of messages: edits, deletions and reactions.
//
// A chat's log holds messages, their changes and system entries; all have a seq. Changes are applied
// to their message in order of seq, each only if it is newer than the message's `rev`. The server
// and the SDK have the same rule.

const AMENDING = new Set(["edit", "delete", "reaction"]);
const SYSTEM = new Set(["member", "update", "pin", "unpin"]);

/** Return whether an entry changes a message; such entries have no row of their own. */
export function isAmending(entry) {
  return AMENDING.has(entry.kind);
}

/** Return whether an entry is a message, not a change or a system entry. */
export function isMessage(entry) {
  return !AMENDING.has(entry.kind) && !SYSTEM.has(entry.kind);
}

/** The tombstone of a deleted message. */
export function tombstoneOf(message, rev = message.rev ?? 0) {
  const { reactions, edited_ts, edited_seq, reply_to, attachments, ...rest } = message;
  return { ...rest, body: "", deleted: true, rev };
}

/** Apply `entry` to its target message; returns the same object if nothing changed. */
export function applyEntry(message, entry) {
  if (entry.seq <= (message.rev ?? 0) || message.deleted || entry.deleted) return message;
  if (entry.kind === "edit") {
    const edited = { edited_ts: entry.ts, edited_seq: entry.seq, rev: entry.seq };
    return { ...message, body: entry.body, ...edited };
  }
  if (entry.kind === "delete") return tombstoneOf(message, entry.seq);
  if (entry.kind !== "reaction") return message;
  // By entries, because "__proto__" is a valid user id.
  const others = Object.entries(message.reactions ?? {}).filter(([user]) => user !== entry.sender);
  if (entry.body) others.push([entry.sender, entry.body]);
  return { ...message, reactions: Object.fromEntries(others), rev: entry.seq };
}

/** The newer of two copies of an entry; a deletion is final. */
export function newerCopy(ours, theirs) {
  if (ours.deleted) return ours;
  if (theirs.deleted) return theirs;
  return (theirs.rev ?? 0) > (ours.rev ?? 0) ? theirs : ours;
}

/** The reactions to a message by emoji: `[{emoji, users}]`. */
export function countReactions(message) {
  const users = new Map();
  for (const [user, emoji] of Object.entries(message.reactions ?? {})) {
    users.set(emoji, [...(users.get(emoji) ?? []), user]);
  }
  return [...users].map(([emoji, who]) => ({ emoji, users: who.sort() }));
}
