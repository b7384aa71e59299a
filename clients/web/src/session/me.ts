// The user's own account. It is reloaded when the user returns to the window, because another
// device may have changed it.

import { useEffect, useSyncExternalStore } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";

let me: Http.Me | null = null;
let loading: Promise<void> | null = null;
let requestedAtMs = 0;
const listeners = new Set<() => void>();
const REFRESH_MS = 60_000;

function set(next: Http.Me): void {
  me = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Replace the account, after a change of the profile. */
export function setMe(next: Http.Me): void {
  set(next);
}

/** Return the user's account; null until it is loaded. */
export function useMe(): Http.Me | null {
  const client = useClient();
  const current = useSyncExternalStore(subscribe, () => me);
  useEffect(() => {
    const load = (): void => {
      requestedAtMs = Date.now();
      loading ??= client.http
        .call("get_me", {})
        .then(set, () => {}) // offline: the next page loads it
        .finally(() => {
          loading = null;
        });
    };
    const refresh = (): void => {
      if (Date.now() - requestedAtMs > REFRESH_MS) load();
    };
    if (me === null || me.user !== client.user) load();
    addEventListener("focus", refresh);
    return () => removeEventListener("focus", refresh);
  }, [client]);
  return current?.user === client.user ? current : null; // another user has logged in
}

/** Return whether the user is an administrator of the server. */
export function useIsAdmin(): boolean {
  return useMe()?.is_admin === true;
}
