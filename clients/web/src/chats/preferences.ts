// Chat preferences in this browser: saved for offline starts, and hooks for components.

import type { ChatClient, ChatPreferences, SavedPreferences } from "tierchat";
import { useClient, usePinnedChats, usePreferences } from "tierchat/react";
import { browserStorage } from "../data/browser_storage";
import { getNowMs } from "../i18n/format";

const SAVE_MS = 1_000;

/** Return whether a chat is muted now. */
export function isMutedChat({ mutedUntilS }: ChatPreferences): boolean {
  return mutedUntilS !== null && (mutedUntilS === 0 || mutedUntilS * 1000 > getNowMs());
}

/** Restore the preferences saved for a user and save changes. Call it before `connect`. */
export function persistPreferences(client: ChatClient, user: string): void {
  if (user === "") return;
  const { preferences } = client;
  const key = `tierchat.chatPreferences.${user}`;
  try {
    const saved = browserStorage.getJson<SavedPreferences>(key);
    if (saved !== null) preferences.restore(saved);
  } catch {
    // They are in another format: the preferences are loaded from the server.
  }
  let timer: ReturnType<typeof setTimeout> | undefined;
  const save = (): void => {
    if (timer === undefined) return;
    clearTimeout(timer);
    timer = undefined;
    if (client.error !== null) return; // logged out
    browserStorage.setJson(key, preferences.saved);
  };
  preferences.onChange(() => {
    timer ??= setTimeout(save, SAVE_MS);
  });
  addEventListener("pagehide", save);
}

/** Return the preferences of a chat, whether it is pinned, and functions that change them. */
export function useChatPreferences(chat: string) {
  const { preferences } = useClient();
  const isPinned = usePinnedChats().includes(chat);
  return {
    ...usePreferences(chat),
    isPinned,
    togglePin: () => (isPinned ? preferences.unpin(chat) : preferences.pin(chat)),
    change: (changes: Parameters<typeof preferences.change>[1]) =>
      preferences.change(chat, changes),
  };
}
