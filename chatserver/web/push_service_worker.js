// Service worker: shows push notifications while no window of the client has the focus.
//
// Its scope (/push/) contains no pages. It handles no fetch and keeps no cache, so it never comes
// between a page and the server.

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
    return; // not in our format
  }
  if (!CHAT.test(notice?.chat)) return;
  await drawBadge(notice.badge);
  const windows = await listWindows();
  if (windows.some((window) => window.focused)) return;
  const name = String(notice.name ?? notice.sender ?? "");
  await self.registration.showNotification(notice.title ? `${name} in ${notice.title}` : name, {
    body: String(notice.text || WITHOUT_PREVIEW),
    tag: notice.chat, // replaced by the chat's next notification
    renotify: true,
    icon: "/icon.svg",
    timestamp: Number(notice.ts) / 1000 || Date.now(),
    data: { chat: notice.chat, seq: notice.seq },
  });
}

/** Open a chat in an existing window, or in a new one. */
async function open(chat) {
  if (!CHAT.test(chat)) return;
  const [window] = await listWindows();
  if (window === undefined) {
    await self.clients.openWindow(`/#/chat/${chat}`);
    return;
  }
  window.postMessage({ type: "open-chat", chat });
  await window.focus().catch(() => {}); // not always allowed
}

function listWindows() {
  return self.clients.matchAll({ type: "window", includeUncontrolled: true });
}

async function drawBadge(count) {
  if (!("setAppBadge" in self.navigator)) return;
  // Without a count, the badge is a plain dot.
  await (Number.isInteger(count) ? self.navigator.setAppBadge(count) : self.navigator.setAppBadge())
    .catch(() => {});
}
