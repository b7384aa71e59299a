// User-facing texts for error codes of the server.

/** Errors of sending a message. */
const SEND_ERRORS = new Map([
  ["forbidden", "You don't have permission to send this."],
  ["not_found", "This chat no longer exists."],
  ["too_large", "The message is too long."],
  ["conflict", "Something went wrong. Copy the text, delete this message and send it as a new one."],
]);

/** Server messages that are more specific than the code. */
const REASONS = new Map([
  ["chat: you may not send messages here", "You're muted in this group. Contact a group admin."],
  ["chat: you cannot exchange messages with this user", "You can't message each other."],
  ["chat: this session has ended and is read-only", "This session has ended."],
  ["seq: the message is deleted", "This message was deleted."],
]);

/** Errors of editing or deleting. */
const CHANGE_ERRORS = new Map([
  ["forbidden", "You don't have permission to change this message."],
  ["not_found", "This message no longer exists."],
  ["too_large", "The text is too long."],
]);

const REACTION_ERRORS = new Map([
  ...CHANGE_ERRORS,
  ["too_large", "This message has too many reactions."],
]);

/** Errors of loading messages. */
export const LOAD_ERRORS = new Map([
  ["forbidden", "You're not a member of this chat."],
  ["not_found", "This chat doesn't exist, or you're not a member."],
]);

/** The text for the permanent error of an outbox entry. `change`: as in the entry. */
export function entryError(error, change) {
  const texts = change ? (change.kind === "reaction" ? REACTION_ERRORS : CHANGE_ERRORS) : SEND_ERRORS;
  return reasonOf(error) ?? texts.get(error.code) ?? `Request failed: ${withoutField(error.message)}.`;
}

/** The server's text without the wire field at its start. */
const withoutField = (message) => message.replace(/^\w+: /u, "");

/** A text more specific than the code: why a member can't send, or the host application's reason. */
function reasonOf({ code, message }) {
  if (code === "rate_limited") return `${withoutField(message)}.`;
  if (REASONS.has(message) || code !== "forbidden") return REASONS.get(message);
  const [, detail] = /^body: (.+)$/s.exec(message) ?? [];
  return detail && `${detail.charAt(0).toUpperCase()}${detail.slice(1)}.`;
}
