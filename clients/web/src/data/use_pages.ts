// Lists that the server returns in pages.

import { useCallback, useEffect, useRef, useState } from "react";
import type { ChatError } from "tierchat";
import { toChatError, useRetryOnline } from "./use_load";

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
  isInitial: boolean;
  isLoading: boolean;
  hasMore: boolean;
  error: ChatError | null;
  /** Load the next page; after an error, repeat the request that failed. */
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
  isInitial: boolean;
  isLoading: boolean;
  error: ChatError | null;
}

const empty = { items: [], next: null, isInitial: true, isLoading: true, error: null };

/** Append a page to a list, up to `ITEMS_MAX` items. */
export function appendPage<T>(
  before: readonly T[],
  page: Page<T>,
): { items: T[]; next: string | null } {
  const items = [...before, ...page.items].slice(0, ITEMS_MAX);
  return { items, next: items.length < ITEMS_MAX ? (page.next ?? null) : null };
}

/** Return the page for `loadMore`. `wasFirst`: the last request was for the first page. */
export function choosePage(
  { isLoading, isInitial, error, next }: Omit<State<unknown>, "key" | "items">,
  wasFirst: boolean,
): "first" | "next" | null {
  if (isLoading) return null;
  if (error !== null) return wasFirst ? "first" : "next"; // repeat the request that failed
  if (isInitial) return "first";
  return next === null ? null : "next";
}

/** Load a list page by page; a new `key` starts a new list, null loads nothing. */
export function usePages<T>(
  key: string | null,
  load: (cursor: string | undefined) => Promise<Page<T>>,
): Pages<T> {
  const [state, setState] = useState<State<T>>({ key, ...empty });
  const latest = useRef({ load, state, generation: 0, isFirst: true });
  latest.current.load = load;
  latest.current.state = state;

  const request = useCallback(
    (isFirst: boolean) => {
      if (key === null) return;
      const generation = (latest.current.generation += 1); // older responses are dropped
      latest.current.isFirst = isFirst;
      const { next } = latest.current.state;
      setState((previous) => ({ ...previous, isLoading: true, error: null }));
      latest.current.load(isFirst ? undefined : (next ?? undefined)).then(
        (page) => {
          if (generation !== latest.current.generation) return;
          setState((previous) => ({
            key,
            ...appendPage(isFirst ? [] : previous.items, page),
            isInitial: false,
            isLoading: false,
            error: null,
          }));
        },
        (cause: unknown) => {
          if (generation !== latest.current.generation) return;
          setState((previous) => ({ ...previous, isLoading: false, error: toChatError(cause) }));
        },
      );
    },
    [key],
  );

  useEffect(() => {
    const { current } = latest;
    setState({ key, ...empty, isLoading: key !== null });
    request(true);
    return () => {
      current.generation += 1;
    };
  }, [key, request]);

  const reload = useCallback(() => request(true), [request]);
  const loadMore = useCallback(() => {
    const page = choosePage(latest.current.state, latest.current.isFirst);
    if (page !== null) request(page === "first");
  }, [request]);
  const update = useCallback((change: (items: readonly T[]) => readonly T[]) => {
    setState((previous) => ({ ...previous, items: change(previous.items) }));
  }, []);
  useRetryOnline(state.error?.isTemporary ?? false, loadMore);
  const current = state.key === key ? state : { key, ...empty };
  return {
    items: current.items,
    isInitial: current.isInitial,
    isLoading: key !== null && current.isLoading,
    hasMore: current.next !== null,
    error: current.error,
    loadMore,
    reload,
    update,
  };
}
