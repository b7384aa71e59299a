// Permissions of roles in a group; the server has the same rules. Pure functions.

import type { Http } from "tierchat";

/** A role in a group. */
export type Role = Http.Member["role"];

const RANKS: Record<Role, number> = { owner: 2, admin: 1, member: 0 };

/** Return whether a role manages the group: its settings, members, bans and reports. */
export function isManager(role: Role | undefined): boolean {
  return role === "owner" || role === "admin";
}

/** Return whether a role may remove, mute and ban members with another role. */
export function canModerate(ownRole: Role | undefined, memberRole: Role): boolean {
  return ownRole === "owner" || (ownRole === "admin" && memberRole === "member");
}

/** Return the roles that a user may assign to a member. Only owners change roles. */
export function listAssignableRoles(ownRole: Role | undefined, memberRole: Role): Role[] {
  const all: Role[] = ["owner", "admin", "member"];
  return ownRole === "owner" ? all.filter((role) => role !== memberRole) : [];
}

/** Return the members sorted by role, then by name. */
export function sortMembers(
  members: readonly Http.Member[],
  getName: (user: string) => string,
): Http.Member[] {
  return [...members].sort(
    (a, b) => RANKS[b.role] - RANKS[a.role] || getName(a.user).localeCompare(getName(b.user)),
  );
}

/** Return whether a member is muted now. `until` is in Unix seconds; 0: forever. */
export function isMutedUntil(until: number | undefined, nowMs: number): boolean {
  return until !== undefined && (until === 0 || until * 1000 > nowMs);
}
