// The members of a group by role, with presence and actions for managers.

import { Ban, Ellipsis, MessageCircle, Shield, UserMinus, UserRound, VolumeX } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { Http } from "tierchat";
import { useClient, usePresence } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { usePages } from "../data/use_pages";
import { ConfirmDialog, Label, MenuButton, type MenuItem, showToast, TextField } from "../design";
import { isMatch } from "../directory/contacts";
import { getDirectory, usePerson } from "../directory/directory";
import { PersonAvatar } from "../directory/PersonAvatar";
import {
  canModerate,
  isMutedUntil,
  listAssignableRoles,
  type Role,
  sortMembers,
} from "../directory/roles";
import { useText } from "../i18n";
import { getNowMs } from "../i18n/format";
import { PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { buildPath, navigate } from "../page/router";
import type { Group } from "./use_group";

const SEARCH_MEMBERS_MIN = 8;
const WATCHED_MAX = 100;
const HOUR_S = 3_600;
const DAY_S = 86_400;

/** The tab "Members". */
export function MembersTab({ group }: { group: Group }) {
  const text = useText().group;
  const client = useClient();
  const { info } = group;
  const profiles = getDirectory(client);
  const [query, setQuery] = useState("");
  const pages = usePages(`members ${info.chat}`, (cursor) =>
    client.http.call("list_members", {
      chat: info.chat,
      limit: 200,
      ...(cursor ? { cursor } : {}),
    }),
  );
  const presence = usePresence(pages.items.slice(0, WATCHED_MAX).map(({ user }) => user));
  const { reload } = pages;
  const loadedInfo = useRef(info);
  useEffect(() => {
    if (loadedInfo.current === info) return;
    loadedInfo.current = info; // changes of members, roles or mutes
    reload();
  }, [info, reload]);
  return (
    <PagesView pages={pages} empty={null}>
      {(items) => {
        const members = sortMembers(items, (user) => profiles.get(user).name);
        const matches = members.filter(({ user }) => isMatch(query, user, profiles.get(user).name));
        return (
          <>
            {items.length >= SEARCH_MEMBERS_MIN && (
              <TextField
                type="search"
                label={text.findMember}
                isLabelHidden
                placeholder={text.findMember}
                value={query}
                onChange={(event) => setQuery(event.target.value)}
              />
            )}
            <Rows label={text.tabs.members}>
              {matches.map((member) => (
                <MemberRow
                  key={member.user}
                  member={member}
                  group={group}
                  isOnline={presence.get(member.user)?.isOnline}
                />
              ))}
            </Rows>
          </>
        );
      }}
    </PagesView>
  );
}

interface MemberRowProps {
  member: Http.Member;
  group: Group;
  isOnline: boolean | undefined;
}

function MemberRow({ member, group, isOnline }: MemberRowProps) {
  const { group: text, common, people } = useText();
  const client = useClient();
  const { user, role } = member;
  const { name } = usePerson(user);
  const isMe = user === client.user;
  const isMuted = isMutedUntil(group.info.muted?.[user], getNowMs());
  const details = [
    name === user ? "" : `@${user}`,
    isMe ? common.you : isOnline === true ? people.online : "",
    isMuted ? text.cantWrite : "",
  ];
  const line = details.filter(Boolean).join(" · ");
  return (
    <Row
      picture={<PersonAvatar user={user} isOnline={isOnline} />}
      title={<bdi>{name}</bdi>}
      text={line === "" ? undefined : <bdi>{line}</bdi>}
      note={role === "member" ? undefined : <Label kind="accent">{text[role]}</Label>}
      to={buildPath("/people/:user", { user })}
      actions={isMe ? undefined : <MemberMenu {...{ user, role, name, isMuted, group }} />}
    />
  );
}

interface MemberMenuProps {
  user: string;
  role: Role;
  name: string;
  isMuted: boolean;
  group: Group;
}

function MemberMenu({ user, role, name, isMuted, group }: MemberMenuProps) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const [open, setOpen] = useState<"remove" | "ban" | null>(null);
  const chat = client.chat(group.info.chat);
  const change = (action: () => Promise<unknown>, result: string): Promise<boolean> =>
    attempt(async () => {
      await action();
      group.reload();
      showToast(result);
    });
  const mute = (seconds?: number) => (): void =>
    void change(() => chat.mute(user, seconds), text.mutedMember(name));
  const roleLabels = { owner: text.makeOwner, admin: text.makeAdmin, member: text.makeMember };
  const items: MenuItem[] = [
    {
      label: text.message,
      icon: MessageCircle,
      onSelect: () =>
        void attempt(async () => {
          const direct = await client.openDirect(user);
          navigate(buildPath("/chats/:chat", { chat: direct.id }));
        }),
    },
    {
      label: text.profile,
      icon: UserRound,
      onSelect: () => navigate(buildPath("/people/:user", { user })),
    },
    ...listAssignableRoles(group.myRole, role).map((newRole, index) => ({
      label: roleLabels[newRole],
      icon: Shield,
      startsGroup: index === 0,
      onSelect: () => {
        const result = text.isNow(name, text[newRole]);
        void change(() => chat.setRole(user, newRole), result);
      },
    })),
  ];
  if (canModerate(group.myRole, role)) {
    if (isMuted) {
      items.push({
        label: text.unmuteMember,
        icon: VolumeX,
        startsGroup: true,
        onSelect: () => void change(() => chat.mute(user, 0), text.unmutedMember(name)),
      });
    } else {
      items.push(
        { label: text.muteHour, icon: VolumeX, startsGroup: true, onSelect: mute(HOUR_S) },
        { label: text.muteDay, icon: VolumeX, onSelect: mute(DAY_S) },
        { label: text.muteForever, icon: VolumeX, onSelect: mute() },
      );
    }
    items.push(
      {
        label: text.remove,
        icon: UserMinus,
        isDangerous: true,
        startsGroup: true,
        onSelect: () => setOpen("remove"),
      },
      { label: text.ban, icon: Ban, isDangerous: true, onSelect: () => setOpen("ban") },
    );
  }
  return (
    <>
      <MenuButton icon={Ellipsis} label={text.memberActions(name)} items={items} size="s" />
      {open === "remove" && (
        <ConfirmDialog
          title={text.removeTitle(name)}
          message={text.removeText}
          action={text.remove}
          isDangerous
          onConfirm={() => change(() => chat.remove(user), text.removed(name))}
          onClose={() => setOpen(null)}
        />
      )}
      {open === "ban" && (
        <ConfirmDialog
          title={text.banTitle(name)}
          message={text.banText}
          action={text.ban}
          isDangerous
          onConfirm={() => change(() => chat.ban(user), text.banned(name))}
          onClose={() => setOpen(null)}
        />
      )}
    </>
  );
}
