// Loading of values: `useLoad` for one value, `useApi` for one call of the HTTP API.

import { useCallback, useEffect, useRef, useState } from "react";
import { ChatError, type CallOptions, type CallResult, type OperationId } from "tierchat";
import { useClient } from "tierchat/react";

/** A value that is loaded; `data` stays while it is loaded again. */
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
export function errorOf(cause: unknown): ChatError {
  if (cause instanceof ChatError) return cause;
  console.error(cause);
  return new ChatError("internal", String(cause), { cause });
}

/**
 * Load a value for a key; null: load nothing.
 *
 * Results for an earlier key are dropped. After a temporary error, the value is loaded again when
 * the browser is back online.
 */
export function useLoad<T>(key: string | null, load: () => Promise<T>): Loaded<T> {
  const [state, setState] = useState<State<T>>({ key, data: null, error: null, isLoading: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    if (key === null) return;
    let isCurrent = true;
    setState((now) => ({
      key,
      data: now.key === key ? now.data : null,
      error: null,
      isLoading: true,
    }));
    latest.current().then(
      (data) => isCurrent && setState({ key, data, error: null, isLoading: false }),
      (cause: unknown) =>
        isCurrent &&
        setState((now) => ({ key, data: now.data, error: errorOf(cause), isLoading: false })),
    );
    return () => {
      isCurrent = false;
    };
  }, [key, round]);

  const reload = useCallback(() => setRound((now) => now + 1), []);
  const set = useCallback((data: T) => setState((now) => ({ ...now, data })), []);
  useRetryOnline(state.error?.isTemporary ?? false, reload);
  const shown = state.key === key ? state : { data: null, error: null, isLoading: key !== null };
  return {
    data: shown.data,
    error: shown.error,
    isLoading: key !== null && shown.isLoading,
    reload,
    set,
  };
}

/** Call an operation of the HTTP API; `options` null: do not call. */
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
