// The service worker: starts the client offline, shows push notifications, and receives shares.
//
// It stores the files of one build. Pages come from the network, and from the store if that does
// not answer. Other paths of the server, such as the API, are not touched.

import { PAGES } from "../pages";
import { receiveShare } from "./share_target";

// The build puts a list in its place; see plugins/precached.ts.
declare const __PRECACHE__: { version: string; files: string[] };

const worker = self as unknown as ServiceWorkerGlobalScope;
const { version, files } = __PRECACHE__;
const CACHE_PREFIX = "tierchat-";
const CACHE = CACHE_PREFIX + version;
const { origin } = worker.location;
const PAGE_MS = 3_000; // then the stored page is shown
const SHARE = new URL("/share", origin); // the `share_target` of the manifest
const CHAT = /^[A-Za-z0-9_~:.-]{1,140}$/;

worker.addEventListener("install", (event) => event.waitUntil(install()));
worker.addEventListener("activate", (event) => event.waitUntil(activate()));
worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method === "POST" && url.href === SHARE.href) {
    event.respondWith(receiveShare(request, SHARE));
  }
  if (request.method !== "GET" || url.origin !== origin) return;
  if (request.mode !== "navigate") {
    if (files.includes(url.pathname.slice(1))) event.respondWith(fetchStored(request));
  } else if (isPage(url)) event.respondWith(fetchPage(request));
});
worker.addEventListener("push", (event) => event.waitUntil(showPush(event.data)));
worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { chat } = (event.notification.data ?? {}) as { chat?: string };
  event.waitUntil(openChat(chat ?? ""));
});

function isPage({ pathname }: URL): boolean {
  const [, name = ""] = pathname.split("/");
  return name === "" || PAGES.some((each) => each === name);
}

async function install(): Promise<void> {
  const cache = await caches.open(CACHE);
  // `reload`: not from the HTTP cache, which may have the page of the previous build.
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
  const stored = async (): Promise<Response> =>
    (await caches.match("/index.html", { cacheName: CACHE })) ?? Response.error();
  try {
    const response = await fetch(request, { signal: AbortSignal.timeout(PAGE_MS) });
    return response.ok ? response : await stored();
  } catch {
    return stored();
  }
}

async function fetchStored(request: Request): Promise<Response> {
  return (await caches.match(request, { cacheName: CACHE })) ?? fetch(request);
}

// push

/** Content of a push message, as the server sends it. */
interface Notice {
  chat?: string;
  name?: string;
  sender?: string;
  /** The name of a group. */
  title?: string;
  text?: string;
  badge?: number;
  ts?: number;
}

async function showPush(data: PushMessageData | null): Promise<void> {
  let notice: Notice;
  try {
    notice = data?.json() as Notice;
  } catch {
    return; // not in our format
  }
  if (!CHAT.test(notice.chat ?? "")) return;
  await worker.navigator.setAppBadge(notice.badge).catch(() => {});
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (windows.some((window) => window.focused)) return;
  const name = notice.name ?? notice.sender ?? "";
  const options = {
    body: notice.text || "…",
    tag: notice.chat, // replaced by the chat's next notification
    renotify: true,
    icon: "/icon.svg",
    timestamp: (notice.ts ?? 0) / 1000 || Date.now(),
    data: { chat: notice.chat },
  };
  const title = notice.title ? `${name} · ${notice.title}` : name;
  await worker.registration.showNotification(title, options as NotificationOptions);
}

async function openChat(chat: string): Promise<void> {
  if (!CHAT.test(chat)) return;
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const window = windows.find(({ url }) => isPage(new URL(url)));
  if (window === undefined) {
    await worker.clients.openWindow(`/chats/${encodeURIComponent(chat)}`);
    return;
  }
  window.postMessage({ type: "open-chat", chat });
  await window.focus().catch(() => {}); // not always allowed
}
