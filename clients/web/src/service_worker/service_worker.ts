// The service worker: starts the client offline, and shows push notifications.
//
// It stores the files of one build. Pages come from the network, and from the store if that does
// not answer. Calls of the API are never stored.

// The build puts a list in its place; see build/precached.ts.
declare const __PRECACHE__: { version: string; files: string[] };

const worker = self as unknown as ServiceWorkerGlobalScope;
const { version, files } = __PRECACHE__;
const CACHE_PREFIX = "tierchat-";
const CACHE = CACHE_PREFIX + version;
const BASE = new URL("./", worker.location.href);
const PAGE_MS = 3_000; // then the stored page is shown
const CHAT = /^[A-Za-z0-9_~:.-]{1,140}$/;

worker.addEventListener("install", (event) => event.waitUntil(install()));
worker.addEventListener("activate", (event) => event.waitUntil(activate()));
worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== BASE.origin) return;
  if (!url.pathname.startsWith(BASE.pathname)) return;
  if (request.mode === "navigate") event.respondWith(fetchPage(request));
  else if (isStored(url)) event.respondWith(fetchStored(request));
});
worker.addEventListener("push", (event) => event.waitUntil(showPush(event.data)));
worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { chat } = (event.notification.data ?? {}) as { chat?: string };
  event.waitUntil(openChat(chat ?? ""));
});

function isStored(url: URL): boolean {
  return files.includes(url.pathname.slice(BASE.pathname.length));
}

async function install(): Promise<void> {
  const cache = await caches.open(CACHE);
  // `reload`: not from the HTTP cache, which may have the page of the previous build.
  await cache.addAll(files.map((name) => new Request(new URL(name, BASE), { cache: "reload" })));
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
    (await caches.match(new URL("index.html", BASE), { cacheName: CACHE })) ?? Response.error();
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
    icon: new URL("icon.svg", BASE).href,
    timestamp: (notice.ts ?? 0) / 1000 || Date.now(),
    data: { chat: notice.chat },
  };
  const title = notice.title ? `${name} · ${notice.title}` : name;
  await worker.registration.showNotification(title, options as NotificationOptions);
}

async function openChat(chat: string): Promise<void> {
  if (!CHAT.test(chat)) return;
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const window = windows.find(({ url }) => url.startsWith(BASE.href));
  if (window === undefined) {
    await worker.clients.openWindow(new URL(`chats/${encodeURIComponent(chat)}`, BASE));
    return;
  }
  window.postMessage({ type: "open-chat", chat });
  await window.focus().catch(() => {}); // not always allowed
}
