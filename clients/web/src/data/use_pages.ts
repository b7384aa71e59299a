// Lists that the server returns in pages.

import { useCallback, useEffect, useRef, useState } from "react";
import type { ChatError } from "tierchat";
import { errorOf, useRetryOnline } from "./use_load";

/** Maximum number of items per list. */
export const ITEMS_MAX = 2_000;

/** A page of the API. */
export interface Page<T> {
  items: T[];
  next?: string | null;
}

/** The pages of a list loaded so far. */
export interface Pages<T> {
  items: readonly T[];
  /** True until the first page is loaded. */
  isFirst: boolean;
  isLoading: boolean;
  hasMore: boolean;
  error: ChatError | null;
  loadMore: () => void;
  /** Load the first page again; the items stay until it is loaded. */
  reload: () => void;
  /** Change the items, for an optimistic change. */
  update: (change: (items: readonly T[]) => readonly T[]) => void;
}

interface State<T> {
  key: string | null;
  items: readonly T[];
  next: string | null;
  isFirst: boolean;
  isLoading: boolean;
  error: ChatError | null;
}

const empty = { items: [], next: null, isFirst: true, isLoading: true, error: null };

/** Append a page to the items before it, up to `ITEMS_MAX` items. */
export function joinPage<T>(
  before: readonly T[],
  page: Page<T>,
): { items: T[]; next: string | null } {
  const items = [...before, ...page.items].slice(0, ITEMS_MAX);
  return { items, next: items.length < ITEMS_MAX ? (page.next ?? null) : null };
}

/** Load a list page by page; a new `key` starts a new list, null loads nothing. */
export function usePages<T>(
  key: string | null,
  load: (cursor: string | undefined) => Promise<Page<T>>,
): Pages<T> {
  const [state, setState] = useState<State<T>>({ key, ...empty });
  const latest = useRef({ load, state, generation: 0 });
  latest.current.load = load;
  latest.current.state = state;

  const request = useCallback(
    (isFirst: boolean) => {
      if (key === null) return;
      const generation = (latest.current.generation += 1); // older responses are dropped
      const { next } = latest.current.state;
      setState((now) => ({ ...now, isLoading: true, error: null }));
      latest.current.load(isFirst ? undefined : (next ?? undefined)).then(
        (page) => {
          if (generation !== latest.current.generation) return;
          setState((now) => ({
            key,
            ...joinPage(isFirst ? [] : now.items, page),
            isFirst: false,
            isLoading: false,
            error: null,
          }));
        },
        (cause: unknown) => {
          if (generation !== latest.current.generation) return;
          setState((now) => ({ ...now, isLoading: false, error: errorOf(cause) }));
        },
      );
    },
    [key],
  );

  useEffect(() => {
    const current = latest.current;
    setState({ key, ...empty, isLoading: key !== null });
    request(true);
    return () => {
      current.generation += 1;
    };
  }, [key, request]);

  const reload = useCallback(() => request(true), [request]);
  const loadMore = useCallback(() => {
    if (!latest.current.state.isLoading) request(latest.current.state.isFirst);
  }, [request]);
  const update = useCallback((change: (items: readonly T[]) => readonly T[]) => {
    setState((now) => ({ ...now, items: change(now.items) }));
  }, []);
  useRetryOnline(state.error?.isTemporary ?? false, loadMore);
  const shown = state.key === key ? state : { key, ...empty };
  return {
    items: shown.items,
    isFirst: shown.isFirst,
    isLoading: key !== null && shown.isLoading,
    hasMore: shown.next !== null,
    error: shown.error,
    loadMore,
    reload,
    update,
  };
}
