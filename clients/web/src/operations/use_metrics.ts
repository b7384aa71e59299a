// Polls the metrics while the page is visible, and backs off while the API is unavailable.

import { useCallback, useEffect, useRef, useState } from "react";
import type { ChatError, Http } from "tierchat";
import { useClient } from "tierchat/react";
import { toChatError } from "../data/use_load";
import { addOverview, EMPTY_METRICS, getNewestTime, type Metrics } from "./metrics";

const POLL_MS = 2_000;
const POLL_MAX_MS = 30_000;
const SLOW_POLL_MS = 30_000; // audit and cost change slowly

/** Metrics of the installation. */
export interface MetricsState {
  metrics: Metrics;
  audit: Http.AuditReport | null;
  cost: Http.CostReport | null;
  error: ChatError | null;
  /** Delay before the next attempt after a failure, in ms. */
  waitMs: number;
  retry: () => void;
}

/** Load metrics every two seconds. */
export function useMetrics(): MetricsState {
  const { http } = useClient();
  const [state, setState] = useState<Omit<MetricsState, "retry">>({
    metrics: EMPTY_METRICS,
    audit: null,
    cost: null,
    error: null,
    waitMs: POLL_MS,
  });
  const poll = useRef<() => void>(() => {});

  useEffect(() => {
    let isCurrent = true;
    let isRunning = false;
    let metrics = EMPTY_METRICS;
    let waitMs = POLL_MS;
    let slowPollMs = -Infinity;
    let timer: ReturnType<typeof setTimeout> | undefined;

    const run = async (): Promise<void> => {
      clearTimeout(timer);
      if (document.hidden || isRunning) return;
      isRunning = true;
      try {
        const overview = await http.call("get_overview", { after: getNewestTime(metrics) });
        metrics = addOverview(metrics, overview, Date.now());
        let slow: Partial<MetricsState> = {};
        if (performance.now() - slowPollMs > SLOW_POLL_MS) {
          const [audit, cost] = await Promise.all([
            http.call("get_audit", {}),
            http.call("get_cost", {}),
          ]);
          slow = { audit, cost };
          slowPollMs = performance.now();
        }
        waitMs = POLL_MS;
        if (isCurrent) {
          setState((previous) => ({ ...previous, ...slow, metrics, error: null, waitMs }));
        }
      } catch (cause) {
        const error = toChatError(cause);
        waitMs = Math.min(waitMs * 2, POLL_MAX_MS);
        if (isCurrent) setState((previous) => ({ ...previous, error, waitMs }));
        if (error.code === "forbidden") isCurrent = false;
      } finally {
        isRunning = false;
      }
      if (isCurrent) timer = setTimeout(() => void run(), waitMs);
    };
    const onVisible = (): void => {
      if (isCurrent && !document.hidden) void run();
    };
    poll.current = onVisible;
    document.addEventListener("visibilitychange", onVisible);
    void run();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [http]);

  const retry = useCallback(() => poll.current(), []);
  return { ...state, retry };
}
