// Members of a chat, and the presence of users.

import type { ReactElement, ReactNode } from "react";

import { useMembers, usePresence } from "../hooks.js";
import type { Member } from "../members.js";
import { useTexts } from "../provider.js";

/** Properties of {@link MemberList}. */
export interface MemberListProps {
  chat: string;
  /** Content of an item; by default name, presence and role. */
  renderMember?: (member: Member) => ReactNode;
}

/** The members of a chat. Class: `tierchat-members`; items have `data-role`. */
export function MemberList({ chat, renderMember }: MemberListProps): ReactElement {
  const { labels, getName } = useTexts();
  const members = useMembers(chat);
  return (
    <ul className="tierchat-members" aria-label={labels.members}>
      {members.map((member) => (
        <li key={member.user} data-role={member.role} data-muted={member.isMuted || undefined}>
          {renderMember?.(member) ?? (
            <>
              <PresenceDot user={member.user} /> {getName(member.user)}
              {member.role !== "member" && <small> {member.role}</small>}
            </>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Presence of a user. Class: `tierchat-presence`; `data-state`: online, away, offline, unknown. */
export function PresenceDot({ user }: { user: string }): ReactElement {
  const state = usePresence([user]).get(user)?.state ?? "unknown";
  return <span className="tierchat-presence" data-state={state} role="img" aria-label={state} />;
}
