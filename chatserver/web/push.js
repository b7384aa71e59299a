// Web push notifications of this browser: subscription and muted chats.
//
// state   "missing"  not supported by the browser or the installation
//         "blocked"  denied by the user in the browser
//         "off" · "on" · "busy"
//         "failed"   subscribing failed at the push service or at our server

import { createCaller } from "./http_client.js";

const WORKER = "/push_service_worker.js";
const SCOPE = "/push/";

// Trusted Types: this worker URL is the only script URL that the page may use.
const trusted = globalThis.trustedTypes?.createPolicy("chat-worker", {
  createScriptURL: () => WORKER,
});

/**
 * `key`: the VAPID public key, or null; `session()` returns `{token}`; `onChange(state)` is called on
 * each change, `onOpen(chat)` when a notification was clicked.
 */
export function createPush({ key, session, onChange, onOpen }) {
  const isThere =
    key !== null && "serviceWorker" in navigator && "PushManager" in window && isSecureContext;
  const abort = new AbortController();
  const quiet = new Map();
  let state = isThere ? "off" : "missing";
  let name = null; // the server's id of the subscription

  function setState(next) {
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

  /** Renew an existing subscription: the server expires it after a while. */
  async function start() {
    if (!isThere) return;
    const { signal } = abort;
    navigator.serviceWorker.addEventListener(
      "message",
      ({ data }) => data?.type === "open-chat" && onOpen(String(data.chat)),
      { signal },
    );
    navigator.serviceWorker.startMessages();
    if (Notification.permission === "denied") setState("blocked");
    if (Notification.permission !== "granted") return;
    try {
      const subscription = await find();
      if (subscription === null) return;
      await register(subscription);
      if (!signal.aborted) setState("on");
    } catch {
      // Unchanged at the server; the next start tries again.
    }
  }

  /** Request permission and subscribe. Must be called from a click. */
  async function turnOn() {
    if (!isThere || state === "busy") return;
    setState("busy");
    try {
      if ((await Notification.requestPermission()) !== "granted") {
        setState(Notification.permission === "denied" ? "blocked" : "off");
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
      setState("on");
    } catch {
      setState("failed");
    }
  }

  /** Unsubscribe, here and at the server. */
  async function turnOff() {
    if (!isThere || state !== "on") return;
    setState("busy");
    try {
      const subscription = await find();
      if (name !== null) await call("DELETE", `/v1/me/push-subscriptions/${name}`).catch(() => {});
      await subscription?.unsubscribe();
    } catch {
      // Removing either half is enough to stop notifications.
    }
    name = null;
    setState("off");
  }

  /** Return whether a chat is muted; cached. */
  async function isQuiet(chat) {
    if (!quiet.has(chat)) {
      const loading = call("GET", `/v1/chats/${chat}/notifications`).then((answer) => answer.quiet);
      quiet.set(chat, loading);
      loading.catch(() => quiet.delete(chat));
    }
    return quiet.get(chat);
  }

  async function setQuiet(chat, isOn) {
    const answer = await call("PUT", `/v1/chats/${chat}/notifications`, { quiet: isOn });
    quiet.set(chat, Promise.resolve(answer.quiet));
    return answer.quiet;
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

/** Show the unread count on the app icon, if supported. */
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
