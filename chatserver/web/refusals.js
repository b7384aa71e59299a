// What refusals of the server mean to a person, in words.

/** What a refusal means to the person who wrote the message. */
export const SEND_WORDS = new Map([
  ["forbidden", "You may not send this here."],
  ["not_found", "This chat does not exist any more."],
  ["too_large", "The message is too long."],
  ["conflict", "Something else was sent under this name. Delete it and write it again."],
]);

/** Reasons of the server that say more than the code. */
const REASONS = new Map([
  ["chat: you may not send messages here", "You are muted here. Ask those who run the group."],
  ["chat: you cannot exchange messages with this user", "You cannot write to each other."],
  ["chat: this session has ended and is read-only", "This session has ended."],
]);

/** The same for somebody who wanted to change a message. */
export const CHANGE_WORDS = new Map([
  ["forbidden", "You may not change this message."],
  ["not_found", "This message does not exist any more."],
  ["too_large", "The text is too long."],
]);

/** The same for somebody who wanted to read. */
export const LOAD_WORDS = new Map([
  ["forbidden", "You are not a member of this chat."],
  ["not_found", "This chat does not exist, or you are not a member of it."],
]);

/** What says more than the code: why a member may not write, or what the host application said. */
export function reasonOf({ code, message }) {
  if (code === "rate_limited") return `${message.replace(/^\w+: /u, "")}.`;
  if (code !== "forbidden") return undefined;
  const [, told] = /^body: (.+)$/s.exec(message) ?? [];
  return REASONS.get(message) ?? (told && `${told.charAt(0).toUpperCase()}${told.slice(1)}.`);
}
