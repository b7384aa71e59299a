// User ids, and contacts: the users of the chats on this device. Pure functions.

import type { Chat } from "tierchat";

/** Maximum number of contacts. */
const CONTACTS_MAX = 500;

/** A user id, as the server accepts it. */
const USER = /^[A-Za-z0-9_-]{1,64}$/;

/** Return whether a text is a valid user id. */
export function isUserId(text: string): boolean {
  return USER.test(text);
}

/** Parse user ids separated by spaces or commas; return null if one is invalid. */
export function parseUsers(text: string): string[] | null {
  const users = text
    .split(/[\s,;]+/u)
    .map((user) => user.replace(/^@/, ""))
    .filter(Boolean);
  return users.every(isUserId) ? [...new Set(users)] : null;
}

/** Return whether a user is a person, not a companion or the system. */
export function isPerson(user: string): boolean {
  return !user.startsWith("ai-") && user !== "system";
}

/** The fields of a chat that determine the contacts. */
export type ChatLike = Pick<Chat, "kind" | "peer" | "members">;

/** Return the users of chats: first users of direct chats in order, then the others by id. */
export function listContacts(chats: readonly ChatLike[], me: string): string[] {
  const direct = chats.map(({ peer }) => peer).filter((user) => user !== null);
  const members = chats.flatMap(({ kind, members: roles }) =>
    kind === "group" ? Object.keys(roles ?? {}) : [],
  );
  const users = new Set([...direct, ...members.sort()]);
  return [...users].filter((user) => user !== me && isPerson(user)).slice(0, CONTACTS_MAX);
}

/**
 * Return whether a user matches a search text.
 *
 * Each word of the text must be a prefix of a word in the name, or a part of the user id.
 */
export function isMatch(text: string, user: string, name: string): boolean {
  const id = normalize(user);
  const words = normalize(name).split(/\s+/u);
  return normalize(text.trim().replace(/^@/, ""))
    .split(/\s+/u)
    .every((part) => id.includes(part) || words.some((word) => word.startsWith(part)));
}

function normalize(text: string): string {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}
