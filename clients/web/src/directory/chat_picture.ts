// Pictures of groups. The link of a picture is cached while it is valid.

import type { ChatClient, Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useLoad } from "../data/use_load";

const LINKS_MAX = 500;
const LINK_MARGIN_MS = 30_000; // a link is replaced this long before its expiry

interface CachedLink {
  link: Promise<Http.FileLink>;
  expiresAtMs: number;
}

const caches = new WeakMap<ChatClient, Map<string, CachedLink>>();

function load(client: ChatClient, chat: string, key: string): Promise<Http.FileLink> {
  const cache = caches.get(client) ?? new Map<string, CachedLink>();
  caches.set(client, cache);
  const cached = cache.get(key);
  if (cached !== undefined && cached.expiresAtMs > Date.now()) return cached.link;
  const link = client.http.call("get_chat_picture", { chat, thumb: 1 });
  const [oldest] = cache.keys();
  if (cache.size >= LINKS_MAX && oldest !== undefined) cache.delete(oldest);
  const next: CachedLink = { link, expiresAtMs: Date.now() + LINK_MARGIN_MS };
  cache.set(key, next);
  link.then(
    ({ expires_s: seconds }) => {
      next.expiresAtMs = Date.now() + Math.max(0, seconds * 1000 - LINK_MARGIN_MS);
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
