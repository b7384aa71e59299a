// The picture of a chat: that of the other person or of the group.

import type { Chat } from "tierchat";
import { useClient, usePresence } from "tierchat/react";
import { Avatar } from "../design";
import { useChatPicture } from "./chat_picture";
import { useChatTitle } from "./chat_title";
import { PersonAvatar } from "./PersonAvatar";

interface ChatAvatarProps {
  chat: Chat;
  size?: "s" | "m" | "l" | "xl";
  /** True to show whether the other person is online. */
  hasPresence?: boolean;
}

/** The picture of a chat, with the presence of the other person. */
export function ChatAvatar({ chat, size = "l", hasPresence = false }: ChatAvatarProps) {
  const { peer } = chat;
  if (chat.kind === "companion") return <CompanionAvatar chat={chat} size={size} />;
  if (chat.kind !== "direct" || peer === null) return <GroupAvatar chat={chat} size={size} />;
  if (hasPresence) return <PresenceAvatar user={peer} size={size} />;
  return <PersonAvatar user={peer} size={size} />;
}

function PresenceAvatar({ user, size }: { user: string; size: "s" | "m" | "l" | "xl" }) {
  const presence = usePresence([user]);
  return <PersonAvatar user={user} size={size} isOnline={presence.get(user)?.isOnline === true} />;
}

function GroupAvatar({ chat, size }: { chat: Chat; size: "s" | "m" | "l" | "xl" }) {
  const src = useChatPicture(chat.id, chat.picture);
  return <Avatar id={chat.id} name={useChatTitle(chat)} size={size} src={src} />;
}

/** The picture of an AI companion. All sessions with it have the same color. */
function CompanionAvatar({ chat, size }: { chat: Chat; size: "s" | "m" | "l" | "xl" }) {
  const { user } = useClient();
  const companion = Object.keys(chat.members ?? {}).find((member) => member !== user);
  return <Avatar id={companion ?? chat.id} name={useChatTitle(chat)} size={size} />;
}
