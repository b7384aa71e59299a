// Loading of values: `useLoad` for one value, `useApi` for one call of the HTTP API.

import { useCallback, useEffect, useRef, useState } from "react";
import { type CallOptions, type CallResult, ChatError, type OperationId } from "tierchat";
import { useClient } from "tierchat/react";

/** A loaded value. `data` stays while the value is reloaded. */
export interface Loaded<T> {
  data: T | null;
  error: ChatError | null;
  isLoading: boolean;
  /** Load the value again. */
  reload: () => void;
  /** Replace the value, for an optimistic change. */
  set: (data: T) => void;
}

interface State<T> {
  key: string | null;
  data: T | null;
  error: ChatError | null;
  isLoading: boolean;
}

/** Convert a thrown value to a `ChatError`. Other errors are bugs and are logged. */
export function toChatError(cause: unknown): ChatError {
  if (cause instanceof ChatError) return cause;
  console.error(cause);
  return new ChatError("internal", String(cause), { cause });
}

/**
 * Load the value of a key; nothing if the key is null.
 *
 * Results for an earlier key are dropped. After a temporary error, the value is loaded again when
 * the browser is back online.
 */
export function useLoad<T>(key: string | null, load: () => Promise<T>): Loaded<T> {
  const [state, setState] = useState<State<T>>({ key, data: null, error: null, isLoading: true });
  const [reloads, setReloads] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    if (key === null) return;
    let isCurrent = true;
    setState((previous) => ({
      key,
      data: previous.key === key ? previous.data : null,
      error: null,
      isLoading: true,
    }));
    latest.current().then(
      (data) => isCurrent && setState({ key, data, error: null, isLoading: false }),
      (cause: unknown) =>
        isCurrent &&
        setState((previous) => ({
          key,
          data: previous.data,
          error: toChatError(cause),
          isLoading: false,
        })),
    );
    return () => {
      isCurrent = false;
    };
  }, [key, reloads]);

  const reload = useCallback(() => setReloads((count) => count + 1), []);
  const set = useCallback((data: T) => setState((previous) => ({ ...previous, data })), []);
  useRetryOnline(state.error?.isTemporary ?? false, reload);
  const current = state.key === key ? state : { data: null, error: null, isLoading: key !== null };
  return {
    data: current.data,
    error: current.error,
    isLoading: key !== null && current.isLoading,
    reload,
    set,
  };
}

/** Call an operation of the HTTP API; no call if `options` is null. */
export function useApi<Id extends OperationId>(
  id: Id,
  options: CallOptions<Id> | null,
): Loaded<CallResult<Id>> {
  const client = useClient();
  const key = options === null ? null : `${id} ${JSON.stringify(options)}`;
  return useLoad(key, () => client.http.call(id, options as CallOptions<Id>));
}

/** Call `retry` when the browser is back online. */
export function useRetryOnline(isWaiting: boolean, retry: () => void): void {
  useEffect(() => {
    if (!isWaiting) return;
    addEventListener("online", retry);
    return () => removeEventListener("online", retry);
  }, [isWaiting, retry]);
}
