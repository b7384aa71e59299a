// Push notifications of this browser, with a subscription of the service worker.

import { useCallback, useEffect, useState } from "react";
import type { ChatClient } from "tierchat";
import { useClient } from "tierchat/react";
import { browserStorage } from "../data/browser_storage";
import { useOpenSession } from "../session/session_context";

/** "missing": the browser or the server has no support. "blocked": the user denied it. */
export type PushState = "missing" | "blocked" | "off" | "on" | "busy" | "failed";

const KEY = "tierchat.push"; // id of the subscription on the server

/** Return the state of push notifications, and a function that enables or disables them. */
export function usePush(): { state: PushState; setEnabled: (isOn: boolean) => Promise<void> } {
  const client = useClient();
  const { config } = useOpenSession();
  const key = config.push_key;
  const [state, setState] = useState<PushState>(() => getInitialState(key));
  // biome-ignore lint/correctness/useExhaustiveDependencies: only on mount
  useEffect(() => {
    if (state !== "off") return;
    void findSubscription().then((subscription) => subscription !== null && setState("on"));
  }, []);
  const setEnabled = useCallback(
    async (isOn: boolean) => {
      setState("busy");
      try {
        setState(isOn ? await enablePush(client, key ?? "") : await disablePush(client));
      } catch {
        setState("failed");
      }
    },
    [client, key],
  );
  return { state, setEnabled };
}

/** Register the subscription again, because the server deletes old subscriptions. */
export async function renewSubscription(client: ChatClient): Promise<void> {
  const subscription = await findSubscription();
  if (subscription === null) return;
  browserStorage.set(KEY, await client.registerPush(subscription));
}

/** Delete the subscription. Call it before a logout. */
export async function disablePush(client: ChatClient): Promise<PushState> {
  const id = browserStorage.get(KEY);
  browserStorage.remove(KEY);
  if (id !== null) await client.unregisterPush(id).catch(() => {});
  await (await findSubscription())?.unsubscribe();
  return "off";
}

async function enablePush(client: ChatClient, key: string): Promise<PushState> {
  if ((await Notification.requestPermission()) !== "granted") {
    return Notification.permission === "denied" ? "blocked" : "off";
  }
  const registration = await navigator.serviceWorker.getRegistration("/");
  if (registration === undefined) return "missing"; // `ready` would never resolve
  const subscription = await registration.pushManager.subscribe({
    userVisibleOnly: true,
    applicationServerKey: key,
  });
  browserStorage.set(KEY, await client.registerPush(subscription));
  return "on";
}

function getInitialState(key: string | null): PushState {
  const isSupported = "serviceWorker" in navigator && "PushManager" in window && isSecureContext;
  if (key === null || !isSupported) return "missing";
  return Notification.permission === "denied" ? "blocked" : "off";
}

async function findSubscription(): Promise<PushSubscription | null> {
  if (!("serviceWorker" in navigator) || !("PushManager" in window)) return null;
  try {
    const registration = await navigator.serviceWorker.getRegistration("/");
    return (await registration?.pushManager.getSubscription()) ?? null;
  } catch {
    return null; // browsers refuse service workers where they refuse storage
  }
}
