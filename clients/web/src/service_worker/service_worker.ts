// The service worker: starts the client offline, shows push notifications, and receives shares.
//
// It caches the files of one build. Pages come from the network, or from the cache if the network
// does not respond. Requests to other paths, such as the API, are not handled.

import { PAGES } from "../page/paths";
import { isChatId, parseNotice } from "./push_notification";
import { isFromAnotherSite, receiveShare } from "./share_target";

// The build replaces this with the list of files; see plugins/precached.ts.
declare const __PRECACHE__: { version: string; files: string[] };

const worker = self as unknown as ServiceWorkerGlobalScope;
const { version, files } = __PRECACHE__;
const CACHE_PREFIX = "tierchat-";
const CACHE = CACHE_PREFIX + version;
const { origin } = worker.location;
const PAGE_TIMEOUT_MS = 3_000; // then the cached page is shown
const SHARE = new URL("/share", origin); // the `share_target` of the manifest

worker.addEventListener("install", (event) => event.waitUntil(install()));
worker.addEventListener("activate", (event) => event.waitUntil(activate()));
worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method === "POST" && url.href === SHARE.href) {
    const isForeign = isFromAnotherSite(request, origin);
    const refused = new URL("?refused", SHARE);
    event.respondWith(isForeign ? Response.redirect(refused, 303) : receiveShare(request, SHARE));
  }
  if (request.method !== "GET" || url.origin !== origin) return;
  if (request.mode !== "navigate") {
    if (files.includes(url.pathname.slice(1))) event.respondWith(fetchCached(request));
  } else if (isPage(url)) event.respondWith(fetchPage(request));
});
worker.addEventListener("push", (event) => event.waitUntil(showPush(event.data)));
worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { chat } = (event.notification.data ?? {}) as { chat?: unknown };
  event.waitUntil(openChat(chat));
});

function isPage({ pathname }: URL): boolean {
  const [, name = ""] = pathname.split("/");
  return name === "" || PAGES.some((page) => page === name);
}

async function install(): Promise<void> {
  const cache = await caches.open(CACHE);
  // `reload` bypasses the HTTP cache, which may have the page of the previous build.
  await cache.addAll(files.map((name) => new Request(`/${name}`, { cache: "reload" })));
  await worker.skipWaiting();
}

async function activate(): Promise<void> {
  for (const name of await caches.keys()) {
    if (name.startsWith(CACHE_PREFIX) && name !== CACHE) await caches.delete(name);
  }
  await worker.clients.claim();
}

async function fetchPage(request: Request): Promise<Response> {
  const fetchCachedPage = async (): Promise<Response> =>
    (await caches.match("/index.html", { cacheName: CACHE })) ?? Response.error();
  try {
    const response = await fetch(request, { signal: AbortSignal.timeout(PAGE_TIMEOUT_MS) });
    return response.ok ? response : await fetchCachedPage();
  } catch {
    return fetchCachedPage();
  }
}

async function fetchCached(request: Request): Promise<Response> {
  return (await caches.match(request, { cacheName: CACHE })) ?? fetch(request);
}

// push

async function showPush(data: PushMessageData | null): Promise<void> {
  const notice = parseNotice(readJson(data), Date.now());
  if (notice === null) return;
  // Firefox does not support badges.
  if (notice.badge !== null) await worker.navigator.setAppBadge?.(notice.badge).catch(() => {});
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (windows.some((window) => window.focused)) return;
  const options = {
    body: notice.body,
    tag: notice.chat, // replaced by the chat's next notification
    renotify: true,
    icon: "/icon.svg",
    timestamp: notice.timeMs,
    data: { chat: notice.chat },
  };
  await worker.registration.showNotification(notice.title, options as NotificationOptions);
}

function readJson(data: PushMessageData | null): unknown {
  try {
    return data?.json();
  } catch {
    return null; // invalid format
  }
}

async function openChat(chat: unknown): Promise<void> {
  if (!isChatId(chat)) return;
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const window = windows.find(({ url }) => isPage(new URL(url)));
  if (window === undefined) {
    await worker.clients.openWindow(`/chats/${encodeURIComponent(chat)}`);
    return;
  }
  window.postMessage({ type: "open-chat", chat });
  await window.focus().catch(() => {}); // browsers may forbid it
}
