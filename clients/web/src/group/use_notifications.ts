// Notifications of a chat: on, or muted until a time.

import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { showToast } from "../design";
import { useText } from "../i18n";
import { formatDateTime, getNowMs } from "../i18n/format";

/** The notification state of a chat, and a function that changes it. */
export interface Notifications {
  state: Http.ChatNotifications | null;
  /** Mute for `seconds`; null: until the user unmutes; 0: unmute. */
  mute: (seconds: number | null) => void;
}

/** Return the notification state of a chat. */
export function useNotifications(chat: string): Notifications {
  const text = useText().group;
  const client = useClient();
  const loaded = useApi("get_notifications", { chat });
  const attempt = useAttempt();
  const mute = (seconds: number | null): void =>
    void attempt(async () => {
      const until = seconds === null ? null : Math.floor(getNowMs() / 1000) + seconds;
      const body = { quiet: seconds !== 0, until: seconds === 0 ? null : until };
      const state = await client.http.call("set_notifications", { chat, body });
      loaded.set(state);
      showToast(formatNotifications(text, state));
    });
  return { state: loaded.data, mute };
}

/** Return the text of a notification state. */
export function formatNotifications(
  text: { notMuted: string; mutedAlways: string; mutedUntil: (when: string) => string },
  { quiet, until }: Http.ChatNotifications,
): string {
  if (!quiet) return text.notMuted;
  return until == null ? text.mutedAlways : text.mutedUntil(formatDateTime(until * 1000));
}
