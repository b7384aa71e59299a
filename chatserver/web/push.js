// Notifications of this browser: whether they are on, turning them on and off, and quiet chats.
//
// state   "missing"  the browser or the installation has none
//         "blocked"  the user told the browser so
//         "off" · "on" · "busy"
//         "failed"   turning them on did not work: the push service or our server did not do it

import { createCaller } from "./rest.js";

const WORKER = "/pushworker.js";
const SCOPE = "/push/";

// The page may run one address as a worker, and turn no text at all into markup or script.
const trusted = globalThis.trustedTypes?.createPolicy("chat-worker", {
  createScriptURL: () => WORKER,
});

/**
 * `key`: what to subscribe with, or null; `session()` gives `{token}`; `onChange(state)` hears of
 * every change, `onOpen(chat)` when a notification was clicked.
 */
export function createPush({ key, session, onChange, onOpen }) {
  const isThere =
    key !== null && "serviceWorker" in navigator && "PushManager" in window && isSecureContext;
  const abort = new AbortController();
  const quiet = new Map();
  let state = isThere ? "off" : "missing";
  let name = null; // of the subscription, as the server has it

  function become(next) {
    state = next;
    onChange(state);
  }

  const call = createCaller(session, (status) => new Error(`status ${status}`));

  async function find() {
    const registration = await navigator.serviceWorker.getRegistration(SCOPE);
    return (await registration?.pushManager.getSubscription()) ?? null;
  }

  async function register(subscription) {
    const { endpoint, keys } = subscription.toJSON();
    ({ id: name } = await call("POST", "/v1/me/push-subscriptions", { endpoint, keys }));
  }

  /** Take up what was turned on before; the server is told again, for it forgets after a while. */
  async function start() {
    if (!isThere) return;
    const { signal } = abort;
    navigator.serviceWorker.addEventListener(
      "message",
      ({ data }) => data?.type === "open-chat" && onOpen(String(data.chat)),
      { signal },
    );
    navigator.serviceWorker.startMessages();
    if (Notification.permission === "denied") become("blocked");
    if (Notification.permission !== "granted") return;
    try {
      const subscription = await find();
      if (subscription === null) return;
      await register(subscription);
      if (!signal.aborted) become("on");
    } catch {
      // It stays as it was at the server; the next start tries again.
    }
  }

  /** Ask the user and subscribe. Called by a click, never by itself. */
  async function turnOn() {
    if (!isThere || state === "busy") return;
    become("busy");
    try {
      if ((await Notification.requestPermission()) !== "granted") {
        become(Notification.permission === "denied" ? "blocked" : "off");
        return;
      }
      const options = { scope: SCOPE, updateViaCache: "none" };
      const registration = await navigator.serviceWorker.register(
        trusted?.createScriptURL(WORKER) ?? WORKER,
        options,
      );
      await hasBecomeActive(registration);
      const applicationServerKey = bytesOf(key);
      await register(
        await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey }),
      );
      become("on");
    } catch {
      become("failed");
    }
  }

  /** Unsubscribe, here and at the server. */
  async function turnOff() {
    if (!isThere || state !== "on") return;
    become("busy");
    try {
      const subscription = await find();
      if (name !== null) await call("DELETE", `/v1/me/push-subscriptions/${name}`).catch(() => {});
      await subscription?.unsubscribe();
    } catch {
      // Without the browser's part the server's is useless, and the other way round.
    }
    name = null;
    become("off");
  }

  /** Whether a chat is quiet; asked once. */
  async function isQuiet(chat) {
    if (!quiet.has(chat)) {
      const asked = call("GET", `/v1/chats/${chat}/notifications`).then((told) => told.quiet);
      quiet.set(chat, asked);
      asked.catch(() => quiet.delete(chat));
    }
    return quiet.get(chat);
  }

  async function setQuiet(chat, isOn) {
    const told = await call("PUT", `/v1/chats/${chat}/notifications`, { quiet: isOn });
    quiet.set(chat, Promise.resolve(told.quiet));
    return told.quiet;
  }

  return {
    start,
    stop: () => abort.abort(),
    turnOn,
    turnOff,
    isQuiet,
    setQuiet,
    get state() {
      return state;
    },
  };
}

/** Show how many messages are unread on the application's icon, where there is one. */
export function drawBadge(count) {
  if (!("setAppBadge" in navigator)) return;
  const drawn = count > 0 ? navigator.setAppBadge(count) : navigator.clearAppBadge();
  drawn.catch(() => {});
}

function hasBecomeActive(registration) {
  if (registration.active !== null) return Promise.resolve();
  const worker = registration.installing ?? registration.waiting;
  return new Promise((resolve, reject) => {
    const look = () => {
      if (worker.state === "activated") resolve();
      if (worker.state === "redundant") reject(new Error("the worker could not be started"));
    };
    worker.addEventListener("statechange", look);
    look();
  });
}

function bytesOf(base64url) {
  const text = atob(base64url.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}
