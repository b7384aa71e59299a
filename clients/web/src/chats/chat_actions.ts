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
import { type MenuItem, showToast } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { MUTE_CHOICES } from "./mute_choices";
import { isMutedChat, useChatPreferences } from "./preferences";

/** Return the menu items for a chat. `onMute` opens the menu with {@link useMuteActions}. */
export function useChatActions(chat: Chat, onMute: () => void): MenuItem[] {
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
      onSelect: isMuted ? change({ mutedUntilS: null }) : onMute,
    },
    {
      label: isArchived ? text.chats.unarchive : text.chats.archive,
      icon: isArchived ? ArchiveRestore : Archive,
      onSelect: change({ isArchived: !isArchived }),
    },
  ];
}

/** Return the menu items that mute a chat for a time. */
export function useMuteActions(chat: Chat): MenuItem[] {
  const text = useText().group;
  const { change } = useChatPreferences(chat.id);
  const mute = (seconds: number | null) => (): void => {
    const mutedUntilS = seconds === null ? 0 : Math.floor(Date.now() / 1000) + seconds;
    change({ mutedUntilS }).catch((error: unknown) => {
      showToast(getErrorText(error), { kind: "error" });
    });
  };
  return MUTE_CHOICES.map(({ label, seconds }) => ({
    label: text[label],
    onSelect: mute(seconds),
  }));
}
