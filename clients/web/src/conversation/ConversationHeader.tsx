// The header of a conversation: picture, name, status and actions.

import {
  ArrowLeft,
  Brain,
  CalendarDays,
  CheckSquare,
  CircleStop,
  EllipsisVertical,
  Info,
  RefreshCw,
  Search,
  Users,
} from "lucide-react";
import { memo } from "react";
import { useChat, usePresence, useTyping } from "tierchat/react";
import { IconButton, MenuButton, type MenuItem } from "../design";
import { ChatAvatar } from "../directory/ChatAvatar";
import { useChatTitle } from "../directory/chat_title";
import { usePerson } from "../directory/directory";
import { useText } from "../i18n";
import { formatRelative } from "../i18n/format";
import { Sentence } from "../i18n/Sentence";
import { buildPath, Link, navigate, useLocation, useMatch } from "../page/router";
import { openChatSearch } from "../search/chat_search";
import styles from "./ConversationHeader.module.css";
import { useConversation } from "./model/context";

const NOBODY: readonly string[] = [];

export const ConversationHeader = memo(function ConversationHeader() {
  const words = useText();
  const text = words.conversation;
  const model = useConversation();
  const chat = useChat(model.chat.id);
  const peer = chat.peer;
  const name = useChatTitle(chat);
  const isPerson = peer !== null;
  const { query } = useLocation();
  const q = new URLSearchParams({ q: query.get("q") ?? "" }).toString();
  const back = useMatch()?.route.section === "search" ? `/search?${q}` : "/chats";
  const isCompanion = chat.kind === "companion";
  const details = isPerson
    ? buildPath("/people/:user", { user: peer })
    : isCompanion
      ? null
      : buildPath("/chats/:chat/details", { chat: chat.id });
  const items: MenuItem[] = [
    {
      label: text.search,
      icon: Search,
      onSelect: () => openChatSearch(chat.id),
    },
    {
      label: text.jumpToDate,
      icon: CalendarDays,
      onSelect: () => model.dialog.set({ kind: "date" }),
    },
    { label: text.select, icon: CheckSquare, onSelect: () => model.selection.set(new Set()) },
    {
      label: text.details,
      icon: isPerson ? Info : Users,
      startsGroup: true,
      onSelect: () => navigate(buildPath("/chats/:chat/details", { chat: chat.id })),
    },
  ];
  if (isCompanion) items.push(...sessionItems());
  const about = (
    <>
      <ChatAvatar chat={chat} size="m" hasPresence />
      <span className={styles["about"]}>
        <h1>
          <bdi>{name}</bdi>
        </h1>
        <Status chatId={chat.id} peer={peer} />
      </span>
    </>
  );
  function sessionItems(): MenuItem[] {
    const open = (kind: "memory" | "endSession" | "renewSession") => (): void =>
      model.dialog.set({ kind });
    const { companions } = words;
    const memory = { label: companions.memory, icon: Brain, onSelect: open("memory") };
    if (chat.isEnded) return [memory];
    return [
      memory,
      { label: companions.newSession, icon: RefreshCw, onSelect: open("renewSession") },
      {
        label: companions.end,
        icon: CircleStop,
        isDangerous: true,
        startsGroup: true,
        onSelect: open("endSession"),
      },
    ];
  }
  return (
    <header className={styles["header"]}>
      <span className={styles["back"]}>
        <IconButton icon={ArrowLeft} label={words.common.back} onClick={() => navigate(back)} />
      </span>
      {details === null ? (
        <span className={styles["title"]}>{about}</span>
      ) : (
        <Link className={styles["title"]} to={details}>
          {about}
        </Link>
      )}
      <MenuButton icon={EllipsisVertical} label={text.chatActions} items={items} />
    </header>
  );
});

/** Shows who is typing; otherwise the presence of the other person, or the number of members. */
function Status({ chatId, peer }: { chatId: string; peer: string | null }) {
  const { chats, conversation: text } = useText();
  const chat = useChat(chatId);
  const typing = useTyping(chatId);
  const presence = usePresence(peer === null ? NOBODY : [peer]).get(peer ?? "");
  const first = usePerson(typing[0] ?? "");
  if (typing.length > 0) {
    const typingText =
      peer === null ? <Sentence text={text.typingOne} names={[first.name]} /> : text.typing;
    return (
      <span className={styles["status"]} data-active role="status">
        {typing.length === 1 ? typingText : text.typingMany(typing.length)}
      </span>
    );
  }
  let status = "";
  if (peer !== null) {
    if (presence?.isOnline === true) status = text.online;
    else if (presence?.lastSeenTs != null) {
      status = text.lastSeen(formatRelative(presence.lastSeenTs / 1000));
    }
  } else if (chat.kind === "companion") status = chat.isEnded ? chats.ended : text.companion;
  else if (chat.members !== null) status = text.members(Object.keys(chat.members).length);
  if (status === "") return null;
  return (
    <span className={styles["status"]} data-active={presence?.isOnline === true || undefined}>
      {status}
    </span>
  );
}
