// Details of a chat: members, shared files and settings.

import { BellOff, BellRing, LogOut, Search, UserPlus, X } from "lucide-react";
import { useId, useState } from "react";
import type { Http } from "tierchat";
import { useChat, useClient, usePresence } from "tierchat/react";
import { MUTE_CHOICES } from "../chats/mute_choices";
import { useAttempt } from "../data/use_attempt";
import { Avatar, ConfirmDialog, IconButton, MenuButton, SkeletonRows, Tabs } from "../design";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { formatRelative } from "../i18n/format";
import { LoadedView } from "../page/Loadable";
import { buildPath, navigate } from "../page/router";
import { openChatSearch } from "../search/chat_search";
import { AddMembers } from "./AddMembers";
import { ChatActions } from "./ChatActions";
import styles from "./ChatDetails.module.css";
import { GroupPicture } from "./GroupPicture";
import { InviteLinkButton } from "./InviteLink";
import { LinksTab } from "./LinksTab";
import { ManageTab } from "./ManageTab";
import { MembersTab } from "./MembersTab";
import { PinnedTab } from "./PinnedTab";
import { FilesTab, MediaTab } from "./SharedFiles";
import { useChatInfo, useGroup } from "./use_group";
import { useNotifications } from "./use_notifications";

interface ChatDetailsProps {
  chat: string;
  onClose: () => void;
}

/** A panel next to the conversation, or a separate page on a phone. */
export function ChatDetails({ chat, onClose }: ChatDetailsProps) {
  const text = useText();
  const info = useChatInfo(chat);
  const title = info.data?.kind === "group" ? text.group.groupInfo : text.group.details;
  return (
    <section className={styles["panel"]} aria-label={title}>
      <header className={styles["header"]}>
        <h1>{title}</h1>
        <IconButton icon={X} label={text.common.close} onClick={onClose} />
      </header>
      <div className={styles["scroller"]}>
        <LoadedView loaded={info} skeleton={<SkeletonRows count={6} />}>
          {(data) => <Details key={chat} info={data} reload={info.reload} />}
        </LoadedView>
      </div>
    </section>
  );
}

type Tab = "members" | "media" | "files" | "links" | "pinned" | "manage";

function Details({ info, reload }: { info: Http.ChatInfo; reload: () => void }) {
  const text = useText().group;
  const group = useGroup(info, reload);
  const isGroup = info.kind === "group";
  const [tab, setTab] = useState<Tab>(isGroup ? "members" : "media");
  const panel = useId();
  const ids: Tab[] = [
    ...(isGroup ? (["members"] as const) : []),
    "media",
    "files",
    "links",
    "pinned",
    ...(group.isManager ? (["manage"] as const) : []),
  ];
  const openTab = ids.includes(tab) ? tab : (ids[0] ?? "media");
  const { chat } = info;
  return (
    <>
      {isGroup ? (
        <GroupHeader info={info} isManager={group.isManager} />
      ) : (
        <PeerHeader info={info} />
      )}
      <Tabs
        label={text.sections}
        tabs={ids.map((id) => ({ id, label: text.tabs[id] }))}
        selected={openTab}
        panel={panel}
        onSelect={setTab}
      />
      <div id={panel} role="tabpanel" aria-label={text.tabs[openTab]} className={styles["body"]}>
        {openTab === "members" && <MembersTab group={group} />}
        {openTab === "media" && <MediaTab chat={chat} />}
        {openTab === "files" && <FilesTab chat={chat} />}
        {openTab === "links" && <LinksTab chat={chat} />}
        {openTab === "pinned" && <PinnedTab info={info} canUnpin={!isGroup || group.isManager} />}
        {openTab === "manage" && <ManageTab info={info} />}
      </div>
      <ChatActions info={info} />
    </>
  );
}

function GroupHeader({ info, isManager }: { info: Http.ChatInfo; isManager: boolean }) {
  const text = useText();
  const client = useClient();
  const count = info.count ?? info.members.length;
  const presence = usePresence(info.members.slice(0, 100));
  const others = [...presence].filter(([user, { isOnline }]) => isOnline && user !== client.user);
  const online = others.length + (info.members.includes(client.user) ? 1 : 0);
  const [open, setOpen] = useState<"add" | "leave" | null>(null);
  const attempt = useAttempt();
  const name = info.name ?? text.chats.unnamedGroup;
  const counts = [text.group.memberCount(count), online > 0 ? text.group.onlineCount(online) : ""];
  return (
    <div className={styles["top"]}>
      <GroupPicture info={info} name={name} canChange={isManager} />
      <h2>
        <bdi>{name}</bdi>
      </h2>
      <p className={styles["about"]}>{counts.filter(Boolean).join(" · ")}</p>
      {info.topic != null && info.topic !== "" && (
        <p className={styles["topic"]} dir="auto">
          {info.topic}
        </p>
      )}
      <div className={styles["tools"]}>
        {isManager && (
          <IconButton icon={UserPlus} label={text.group.add} onClick={() => setOpen("add")} />
        )}
        {info.joining === "open" && <InviteLinkButton chat={info.chat} />}
        <NotificationsButton chat={info.chat} />
        <SearchButton chat={info.chat} />
        <IconButton icon={LogOut} label={text.group.leave} onClick={() => setOpen("leave")} />
      </div>
      {open === "add" && <AddMembers info={info} onClose={() => setOpen(null)} />}
      {open === "leave" && (
        <ConfirmDialog
          title={text.group.leaveTitle}
          message={text.group.leaveText}
          action={text.group.leave}
          isDangerous
          onConfirm={() =>
            attempt(async () => {
              await client.chat(info.chat).leave();
              navigate("/chats", { replace: true });
            })
          }
          onClose={() => setOpen(null)}
        />
      )}
    </div>
  );
}

function PeerHeader({ info }: { info: Http.ChatInfo }) {
  const text = useText();
  const client = useClient();
  const chat = useChat(info.chat);
  const peer = chat.peer ?? info.members.find((user) => user !== client.user) ?? "";
  const presence = usePresence(info.kind === "direct" ? [peer] : []).get(peer);
  return (
    <div className={styles["top"]}>
      {info.kind === "companion" ? (
        <Avatar id={peer} name={info.name ?? peer} size="xl" />
      ) : (
        <PersonAvatar user={peer} size="xl" isOnline={presence?.isOnline} />
      )}
      <h2>
        {info.kind === "companion" ? <bdi>{info.name ?? peer}</bdi> : <PersonName user={peer} />}
      </h2>
      {presence !== undefined && (
        <p className={styles["about"]}>
          {presence.isOnline
            ? text.people.online
            : presence.lastSeenTs !== null &&
              text.people.lastSeen(formatRelative(presence.lastSeenTs / 1000))}
        </p>
      )}
      <div className={styles["tools"]}>
        {info.kind === "direct" && (
          <IconButton
            icon={UserPlus}
            label={text.group.profile}
            onClick={() => navigate(buildPath("/people/:user", { user: peer }))}
          />
        )}
        <NotificationsButton chat={info.chat} />
        <SearchButton chat={info.chat} />
      </div>
    </div>
  );
}

function SearchButton({ chat }: { chat: string }) {
  const text = useText().group;
  return <IconButton icon={Search} label={text.search} onClick={() => openChatSearch(chat)} />;
}

/** A menu that mutes or unmutes notifications of a chat. */
function NotificationsButton({ chat }: { chat: string }) {
  const text = useText().group;
  const { state, mute } = useNotifications(chat);
  const isMuted = state?.quiet === true;
  const items = [
    ...(isMuted ? [{ label: text.turnOn, icon: BellRing, onSelect: () => mute(0) }] : []),
    ...MUTE_CHOICES.map(({ label, seconds }) => ({
      label: text[label],
      onSelect: () => mute(seconds),
    })),
  ];
  return (
    <MenuButton icon={isMuted ? BellOff : BellRing} label={text.notifications} items={items} />
  );
}
