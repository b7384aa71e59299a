// Push registration: Web Push in browsers, FCM and APNs tokens in React Native.

import type { HttpClient } from "./http_client.js";

/** A token of a native application. */
export interface NativePushToken {
  kind: "fcm" | "apns";
  token: string;
}

/**
 * Register this device for push notifications; return the id of the registration.
 *
 * In a browser, `target` is the result of `pushManager.subscribe`, with `push_key` of
 * `http.call("get_client_config", {})` as `applicationServerKey`. Register again at each start: the
 * server deletes registrations that are not renewed.
 */
export async function registerPush(
  http: HttpClient,
  target: PushSubscription | NativePushToken,
): Promise<string> {
  if ("kind" in target) return (await http.call("subscribe", { body: { ...target } })).id;
  const { endpoint, keys } = target.toJSON();
  const [p256dh, auth] = [keys?.["p256dh"] ?? "", keys?.["auth"] ?? ""];
  const body = { kind: "web" as const, endpoint: endpoint ?? "", keys: { p256dh, auth } };
  return (await http.call("subscribe", { body })).id;
}

/** Delete a registration. */
export async function unregisterPush(http: HttpClient, id: string): Promise<void> {
  await http.call("unsubscribe", { subscription: id });
}
