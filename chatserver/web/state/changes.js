// What an entry of a chat does to the message that it is about.
//
// A chat's log holds messages and what happened to them and to the chat; all have a seq. A message
// is what it was plus the changes after it, in order of seq, each one only if it is newer than the
// message's `rev`. The server and the SDK have the same rule.

const AMENDING = new Set(["edit", "delete", "reaction"]);
const SYSTEM = new Set(["member", "update"]);

/** Says whether an entry changes a message, so that it is never drawn itself. */
export function isAmending(entry) {
  return AMENDING.has(entry.kind);
}

/** Says whether an entry is a message, not something that happened to one or to the chat. */
export function isMessage(entry) {
  return !AMENDING.has(entry.kind) && !SYSTEM.has(entry.kind);
}

/** What is left of a message whose text is gone: its place. */
export function tombstoneOf(message, rev = message.rev ?? 0) {
  const { reactions, edited_ts, edited_seq, reply_to, attachments, ...rest } = message;
  return { ...rest, body: "", deleted: true, rev };
}

/** The message as it is after `entry`, which names it as its target; the same object if it is. */
export function applyEntry(message, entry) {
  if (entry.seq <= (message.rev ?? 0) || message.deleted || entry.deleted) return message;
  if (entry.kind === "edit") {
    const edited = { edited_ts: entry.ts, edited_seq: entry.seq, rev: entry.seq };
    return { ...message, body: entry.body, ...edited };
  }
  if (entry.kind === "delete") return tombstoneOf(message, entry.seq);
  if (entry.kind !== "reaction") return message;
  // By entries, because "__proto__" is a good user id.
  const others = Object.entries(message.reactions ?? {}).filter(([user]) => user !== entry.sender);
  if (entry.body) others.push([entry.sender, entry.body]);
  return { ...message, reactions: Object.fromEntries(others), rev: entry.seq };
}

/** Of two copies of an entry the one that knows more; what is gone stays gone. */
export function newerCopy(ours, theirs) {
  if (ours.deleted) return ours;
  if (theirs.deleted) return theirs;
  return (theirs.rev ?? 0) > (ours.rev ?? 0) ? theirs : ours;
}

/** The reactions to a message by how many chose each: `[{emoji, users}]`. */
export function countReactions(message) {
  const users = new Map();
  for (const [user, emoji] of Object.entries(message.reactions ?? {})) {
    users.set(emoji, [...(users.get(emoji) ?? []), user]);
  }
  return [...users].map(([emoji, who]) => ({ emoji, users: who.sort() }));
}
