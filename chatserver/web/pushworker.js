// Shows what is pushed while no window of the client has the focus.
//
// A service worker with a scope of its own (/push/), where there are no pages: it handles no fetch
// and keeps no cache, so it can never stand between a page and the server.

const CHAT = /^[A-Za-z0-9_-]{1,64}$/;
const WITHOUT_PREVIEW = "New message";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("push", (event) => event.waitUntil(show(event.data)));
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(String(event.notification.data?.chat ?? "")));
});

async function show(data) {
  let notice;
  try {
    notice = data.json();
  } catch {
    return; // not one of ours
  }
  if (!CHAT.test(notice?.chat)) return;
  await drawBadge(notice.badge);
  const windows = await listWindows();
  if (windows.some((window) => window.focused)) return;
  const name = String(notice.name ?? notice.sender ?? "");
  await self.registration.showNotification(notice.title ? `${name} in ${notice.title}` : name, {
    body: String(notice.text || WITHOUT_PREVIEW),
    tag: notice.chat, // the next one of the chat takes its place
    renotify: true,
    icon: "/icon.svg",
    timestamp: Number(notice.ts) / 1000 || Date.now(),
    data: { chat: notice.chat, seq: notice.seq },
  });
}

/** Open a chat in a window that is there, or in a new one. */
async function open(chat) {
  if (!CHAT.test(chat)) return;
  const [window] = await listWindows();
  if (window === undefined) {
    await self.clients.openWindow(`/#/chat/${chat}`);
    return;
  }
  window.postMessage({ type: "open-chat", chat });
  await window.focus().catch(() => {}); // some browsers allow it only now and then
}

function listWindows() {
  return self.clients.matchAll({ type: "window", includeUncontrolled: true });
}

async function drawBadge(count) {
  if (!("setAppBadge" in self.navigator)) return;
  // Without a number there are some, but nobody has counted them.
  await (Number.isInteger(count) ? self.navigator.setAppBadge(count) : self.navigator.setAppBadge())
    .catch(() => {});
}
