// The operator's API key: for routes of the host application, which no user's token may call.
//
// The key stays in the memory of this tab. It is never stored, and a reload forgets it.

import { useSyncExternalStore } from "react";
import { HttpClient } from "tierchat";

let key: string | null = null;
let http: HttpClient | null = null;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Use a key from now on; null forgets it. */
export function setApiKey(next: string | null): void {
  key = next;
  http =
    key === null ? null : new HttpClient({ apiUrl: location.origin, getToken: () => key ?? "" });
  for (const listener of listeners) listener();
}

/** Return the client that calls with the key, or null without a key. */
export function useKeyedHttp(): HttpClient | null {
  return useSyncExternalStore(subscribe, () => http);
}
