// Functions of features that the session calls when it opens, is ready, and ends.

import type { ChatClient } from "tierchat";
import { persistPreferences } from "../chats/preferences";
import { startFailedSends } from "../conversation/model/failed_sends";
import { browserStorage } from "../data/browser_storage";
import type { SessionHooks } from "../session/session";
import { dropSharedContent } from "../share/shared_content";

const PUSH_MS = 2_000;

/** The hooks of all features. */
export const SESSION_HOOKS: readonly SessionHooks[] = [
  { open: persistPreferences },
  { ready: startFailedSends },
  { ready: (client) => void renewPush(client), logOut: disablePushAtLogout },
  { logOut: dropSharedContent },
];

/** Renew the push subscription: the server deletes subscriptions that are not renewed. */
async function renewPush(client: ChatClient): Promise<void> {
  if (browserStorage.get("tierchat.push") === null) return;
  const { renewSubscription } = await import("../settings/push_subscription");
  await renewSubscription(client).catch(() => {}); // retried at the next start
}

/** Turn off push notifications in this browser; wait at most `PUSH_MS` for the server. */
async function disablePushAtLogout(client: ChatClient): Promise<void> {
  const { disablePush } = await import("../settings/push_subscription");
  const timeout = new Promise((resolve) => setTimeout(resolve, PUSH_MS));
  await Promise.race([disablePush(client).catch(() => {}), timeout]);
}
