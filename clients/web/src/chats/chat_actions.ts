// Actions for a chat in menus: pin, archive, mute, mark as unread.

import {
  Archive,
  ArchiveRestore,
  Bell,
  BellOff,
  MailCheck,
  MailOpen,
  Pin,
  PinOff,
} from "lucide-react";
import type { Chat } from "tierchat";
import { getErrorText } from "../app/errors";
import { showToast, type MenuItem } from "../design";
import { useText } from "../i18n";
import { isMutedChat, useChatPreferences } from "./preferences";

/** Return the menu items for a chat. */
export function useChatActions(chat: Chat): MenuItem[] {
  const text = useText();
  const preferences = useChatPreferences(chat.id);
  const run = (work: () => Promise<unknown>) => (): void => {
    work().catch((error: unknown) => showToast(getErrorText(error), { kind: "error" }));
  };
  const change = (changes: Parameters<typeof preferences.change>[0]) =>
    run(() => preferences.change(changes));
  const { isPinned, isArchived } = preferences;
  const isMuted = isMutedChat(preferences);
  const isUnread = chat.unread > 0 || preferences.isMarkedUnread;
  const markRead = run(async () => {
    await chat.markRead();
    if (preferences.isMarkedUnread) await preferences.change({ isMarkedUnread: false });
  });
  return [
    {
      label: isPinned ? text.chats.unpin : text.chats.pin,
      icon: isPinned ? PinOff : Pin,
      onSelect: run(preferences.togglePin),
    },
    {
      label: isUnread ? text.chats.markRead : text.chats.markUnread,
      icon: isUnread ? MailOpen : MailCheck,
      onSelect: isUnread ? markRead : change({ isMarkedUnread: true }),
    },
    {
      label: isMuted ? text.chats.unmute : text.chats.mute,
      icon: isMuted ? Bell : BellOff,
      onSelect: change({ mutedUntilS: isMuted ? null : 0 }),
    },
    {
      label: isArchived ? text.chats.unarchive : text.chats.archive,
      icon: isArchived ? ArchiveRestore : Archive,
      onSelect: change({ isArchived: !isArchived }),
    },
  ];
}
