// User-facing texts for error codes of the server.

/** Errors of sending a message. */
export const SEND_ERRORS = new Map([
  ["forbidden", "You don't have permission to send this."],
  ["not_found", "This chat no longer exists."],
  ["too_large", "The message is too long."],
  ["conflict", "This message conflicts with an earlier one. Delete it and send it again."],
]);

/** Server messages that are more specific than the code. */
const REASONS = new Map([
  ["chat: you may not send messages here", "You're muted in this group. Contact a group admin."],
  ["chat: you cannot exchange messages with this user", "You can't message each other."],
  ["chat: this session has ended and is read-only", "This session has ended."],
]);

/** Errors of editing, deleting or reacting. */
export const CHANGE_ERRORS = new Map([
  ["forbidden", "You don't have permission to change this message."],
  ["not_found", "This message no longer exists."],
  ["too_large", "The text is too long."],
]);

/** Errors of loading messages. */
export const LOAD_ERRORS = new Map([
  ["forbidden", "You're not a member of this chat."],
  ["not_found", "This chat doesn't exist, or you're not a member."],
]);

/** A text more specific than the code: why a member can't send, or the host application's reason. */
export function reasonOf({ code, message }) {
  if (code === "rate_limited") return `${message.replace(/^\w+: /u, "")}.`;
  if (code !== "forbidden") return undefined;
  const [, detail] = /^body: (.+)$/s.exec(message) ?? [];
  return REASONS.get(message) ?? (detail && `${detail.charAt(0).toUpperCase()}${detail.slice(1)}.`);
}
