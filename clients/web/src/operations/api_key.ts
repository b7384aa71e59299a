// The operator's API key, for API routes that do not accept a user's token.
//
// The key stays in the memory of this tab. It is never stored, and is lost on a reload.

import { useSyncExternalStore } from "react";
import { HttpClient } from "tierchat";

let key: string | null = null;
let http: HttpClient | null = null;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Set the key; null removes it. */
export function setApiKey(next: string | null): void {
  key = next;
  http =
    key === null ? null : new HttpClient({ apiUrl: location.origin, getToken: () => key ?? "" });
  for (const listener of listeners) listener();
}

/** Return an HTTP client with the key, or null if no key is set. */
export function useKeyedHttp(): HttpClient | null {
  return useSyncExternalStore(subscribe, () => http);
}
