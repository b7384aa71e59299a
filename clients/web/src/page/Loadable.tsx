// Views for the states of loaded data: loading, failed, empty and loaded.

import { type ReactNode, useEffect, useRef } from "react";
import type { ChatError } from "tierchat";
import type { Loaded } from "../data/use_load";
import type { Pages } from "../data/use_pages";
import { Button, ErrorState, SkeletonRows } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import styles from "./Loadable.module.css";

interface LoadedViewProps<T> {
  loaded: Loaded<T>;
  skeleton?: ReactNode;
  /** Error code → text, for expected errors. */
  errors?: Readonly<Record<string, string>>;
  children: (data: T) => ReactNode;
}

/** Shows a loaded value, an error with a retry button, or a skeleton. */
export function LoadedView<T>({ loaded, skeleton, errors, children }: LoadedViewProps<T>) {
  const { data, error, reload } = loaded;
  if (data !== null) return children(data);
  if (error !== null) return <Failure error={error} onRetry={reload} errors={errors} />;
  return skeleton ?? <SkeletonRows count={4} />;
}

interface FailureProps {
  error: ChatError;
  onRetry?: (() => void) | undefined;
  errors?: Readonly<Record<string, string>> | undefined;
}

/** An error, with a retry button if a retry can succeed. */
export function Failure({ error, onRetry, errors }: FailureProps) {
  const canRetry = error.isTemporary || error.code === "internal";
  const retry = canRetry && onRetry !== undefined ? { onRetry } : {};
  return <ErrorState message={getErrorText(error, errors)} {...retry} />;
}

interface PagesViewProps<T> {
  pages: Pages<T>;
  skeleton?: ReactNode;
  empty: ReactNode;
  errors?: Readonly<Record<string, string>>;
  children: (items: readonly T[]) => ReactNode;
}

/** A list that loads its next page near the end. */
export function PagesView<T>({ pages, skeleton, empty, errors, children }: PagesViewProps<T>) {
  if (pages.isInitial && pages.error !== null) {
    return <Failure error={pages.error} onRetry={pages.loadMore} errors={errors} />;
  }
  if (pages.isInitial) return skeleton ?? <SkeletonRows count={5} />;
  if (pages.items.length === 0 && !pages.hasMore) return empty;
  return (
    <>
      {children(pages.items)}
      <LoadMore pages={pages} />
    </>
  );
}

/** The end of a list: loads the next page when it is near, or on a click. */
export function LoadMore<T>({ pages }: { pages: Pages<T> }) {
  const text = useText();
  const end = useRef<HTMLDivElement>(null);
  const { hasMore, isLoading, error, loadMore, items } = pages;
  useEffect(() => {
    const element = end.current;
    if (element === null || !hasMore || isLoading || error !== null) return;
    const observer = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && loadMore(),
      { rootMargin: "600px" },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, [hasMore, isLoading, error, loadMore, items.length]);
  if (!hasMore) return null;
  return (
    <div ref={end} className={styles["more"]}>
      {error !== null && <p role="alert">{getErrorText(error)}</p>}
      <Button variant="quiet" isBusy={isLoading} onClick={loadMore}>
        {error === null ? text.common.loadMore : text.common.tryAgain}
      </Button>
    </div>
  );
}

/** The error of an action, announced to screen readers. */
export function ActionError({ error }: { error: string | null }) {
  if (error === null) return null;
  return (
    <p role="alert" className={styles["error"]}>
      {error}
    </p>
  );
}
