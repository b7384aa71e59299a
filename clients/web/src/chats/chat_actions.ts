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
import { errorText } from "../app/errors";
import { showToast, type MenuItem } from "../design";
import { useText } from "../i18n";
import { isMutedChat, useChatPreferences, usePreferencesStore } from "./preferences";

/** Return the menu items for a chat. */
export function useChatActions(chat: Chat): MenuItem[] {
  const text = useText();
  const store = usePreferencesStore();
  const preferences = useChatPreferences(chat.id);
  const run = (work: () => Promise<unknown>) => (): void => {
    work().catch((error: unknown) => showToast(errorText(error), { kind: "error" }));
  };
  const change = (changes: Parameters<typeof store.change>[1]) =>
    run(() => store.change(chat.id, changes));
  const { isPinned, archived } = preferences;
  const isMuted = isMutedChat(preferences);
  const isUnread = chat.unread > 0 || preferences.marked_unread;
  const markRead = run(async () => {
    await chat.markRead();
    if (preferences.marked_unread) await store.change(chat.id, { marked_unread: false });
  });
  return [
    {
      label: isPinned ? text.chats.unpin : text.chats.pin,
      icon: isPinned ? PinOff : Pin,
      onSelect: run(() => store.pin(chat.id, !isPinned)),
    },
    {
      label: isUnread ? text.chats.markRead : text.chats.markUnread,
      icon: isUnread ? MailOpen : MailCheck,
      onSelect: isUnread ? markRead : change({ marked_unread: true }),
    },
    {
      label: isMuted ? text.chats.unmute : text.chats.mute,
      icon: isMuted ? Bell : BellOff,
      onSelect: change({ muted_until: isMuted ? null : 0 }),
    },
    {
      label: archived ? text.chats.unarchive : text.chats.archive,
      icon: archived ? ArchiveRestore : Archive,
      onSelect: change({ archived: !archived }),
    },
  ];
}
