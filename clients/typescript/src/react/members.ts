// The members of a chat, in the order of a member list.

import type { Chat } from "../client/chat.js";

const ROLES = ["owner", "admin", "member"];

/** A member of a chat. */
export interface Member {
  readonly user: string;
  /** "owner", "admin" or "member". */
  readonly role: string;
  /** True if the member cannot write. */
  readonly isMuted: boolean;
}

/** Return the members of a chat: owners and admins first, then by name. */
export function listMembers(chat: Chat): readonly Member[] {
  const members = Object.entries(chat.members ?? {}).map(([user, role]) => {
    return { user, role, isMuted: chat.isMuted(user) };
  });
  const rank = ({ role }: Member): number => ROLES.indexOf(role);
  return members.sort((a, b) => rank(a) - rank(b) || (a.user < b.user ? -1 : 1));
}
