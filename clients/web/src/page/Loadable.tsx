// Views for the states of loaded data: loading, failed, empty and loaded.

import { useEffect, useRef, type ReactNode } from "react";
import type { ChatError } from "tierchat";
import { errorText } from "../app/errors";
import type { Loaded } from "../data/use_load";
import type { Pages } from "../data/use_pages";
import { Button, ErrorState, SkeletonRows } from "../design";
import { useText } from "../i18n";
import styles from "./Loadable.module.css";

interface LoadedViewProps<T> {
  of: Loaded<T>;
  skeleton?: ReactNode;
  /** Error code → text, for expected errors. */
  errors?: Readonly<Record<string, string>>;
  children: (data: T) => ReactNode;
}

/** Shows a loaded value, an error with a retry button, or a skeleton. */
export function LoadedView<T>({ of, skeleton, errors, children }: LoadedViewProps<T>) {
  if (of.data !== null) return children(of.data);
  if (of.error !== null) return <Failure error={of.error} onRetry={of.reload} errors={errors} />;
  return skeleton ?? <SkeletonRows count={4} />;
}

interface FailureProps {
  error: ChatError;
  onRetry?: (() => void) | undefined;
  errors?: Readonly<Record<string, string>> | undefined;
}

/** An error, with a retry button if a retry can succeed. */
export function Failure({ error, onRetry, errors }: FailureProps) {
  const canHelp = error.isTemporary || error.code === "internal";
  const retry = canHelp && onRetry !== undefined ? { onRetry } : {};
  return <ErrorState message={errorText(error, errors)} {...retry} />;
}

interface PagesViewProps<T> {
  of: Pages<T>;
  skeleton?: ReactNode;
  empty: ReactNode;
  errors?: Readonly<Record<string, string>>;
  children: (items: readonly T[]) => ReactNode;
}

/** A list that loads its next page near the end. */
export function PagesView<T>({ of, skeleton, empty, errors, children }: PagesViewProps<T>) {
  if (of.isFirst && of.error !== null) {
    return <Failure error={of.error} onRetry={of.loadMore} errors={errors} />;
  }
  if (of.isFirst) return skeleton ?? <SkeletonRows count={5} />;
  if (of.items.length === 0 && !of.hasMore) return empty;
  return (
    <>
      {children(of.items)}
      <LoadMore of={of} />
    </>
  );
}

/** The end of a list: loads the next page when it is near, or on a click. */
export function LoadMore<T>({ of }: { of: Pages<T> }) {
  const text = useText();
  const end = useRef<HTMLDivElement>(null);
  const { hasMore, isLoading, error, loadMore, items } = of;
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
      {error !== null && <p role="alert">{errorText(error)}</p>}
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
