// Pictures of groups. The link of a picture is cached while it is valid.

import type { ChatClient, Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useLoad } from "../data/use_load";

const KEPT_MAX = 500;
const EARLY_MS = 30_000; // a link that expires sooner is replaced

interface Kept {
  link: Promise<Http.FileLink>;
  untilMs: number;
}

const caches = new WeakMap<ChatClient, Map<string, Kept>>();

function load(client: ChatClient, chat: string, key: string): Promise<Http.FileLink> {
  const cache = caches.get(client) ?? new Map<string, Kept>();
  caches.set(client, cache);
  const kept = cache.get(key);
  if (kept !== undefined && kept.untilMs > Date.now()) return kept.link;
  const link = client.http.call("get_chat_picture", { chat, thumb: 1 });
  const [oldest] = cache.keys();
  if (cache.size >= KEPT_MAX && oldest !== undefined) cache.delete(oldest);
  const next: Kept = { link, untilMs: Date.now() + EARLY_MS };
  cache.set(key, next);
  link.then(
    ({ expires_s: seconds }) => {
      next.untilMs = Date.now() + Math.max(0, seconds * 1000 - EARLY_MS);
    },
    () => cache.delete(key),
  );
  return link;
}

/** Return the URL of a group's picture; null if it has none or it is not loaded. */
export function useChatPicture(chat: string, picture: string | null | undefined): string | null {
  const client = useClient();
  const key = picture == null || picture === "" ? null : `${chat} ${picture}`;
  return useLoad(key, () => load(client, chat, key ?? "")).data?.url ?? null;
}
