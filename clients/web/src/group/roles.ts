// Rules of roles in a group, as the server checks them. Pure.

import type { Http } from "tierchat";

/** A role in a group. */
export type Role = Http.Member["role"];

const RANKS: Record<Role, number> = { owner: 2, admin: 1, member: 0 };

/** Return whether a role manages the group: its settings, members, bans and reports. */
export function isManager(role: Role | undefined): boolean {
  return role === "owner" || role === "admin";
}

/** Return whether somebody may remove, mute and ban a member. Admins: only those with no role. */
export function canModerate(mine: Role | undefined, theirs: Role): boolean {
  return mine === "owner" || (mine === "admin" && theirs === "member");
}

/** Roles that somebody may give to a member. Only owners change roles. */
export function assignableRoles(mine: Role | undefined, theirs: Role): Role[] {
  const all: Role[] = ["owner", "admin", "member"];
  return mine === "owner" ? all.filter((role) => role !== theirs) : [];
}

/** Members by role, then by name. */
export function sortMembers(
  members: readonly Http.Member[],
  nameOf: (user: string) => string,
): Http.Member[] {
  return [...members].sort(
    (a, b) => RANKS[b.role] - RANKS[a.role] || nameOf(a.user).localeCompare(nameOf(b.user)),
  );
}

/** Return whether a member cannot write now. `until` is in seconds; 0: without an end. */
export function isMutedUntil(until: number | undefined, nowMs: number): boolean {
  return until !== undefined && (until === 0 || until * 1000 > nowMs);
}

const USER = /^[A-Za-z0-9_-]{1,64}$/;

/** Usernames of a text, separated by spaces or commas; null if one is invalid. */
export function parseUsers(text: string): string[] | null {
  const users = text
    .split(/[\s,;]+/u)
    .map((user) => user.replace(/^@/, ""))
    .filter(Boolean);
  return users.every((user) => USER.test(user)) ? [...new Set(users)] : null;
}
