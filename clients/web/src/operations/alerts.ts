// Alerts of the operations page. Pure functions.

import type { Http } from "tierchat";
import { isStale, type Metrics } from "./metrics";

const BACKLOG_AGE_MAX_S = 30;

/** An alert: its kind and values. The text is in the catalog. */
export type Alert =
  | { kind: "silent"; process: Http.Process; seconds: number }
  | { kind: "noGateway" }
  | { kind: "noPersist" }
  | { kind: "backlog"; seconds: number; hasPersist: boolean }
  | { kind: "findings" }
  | { kind: "unchecked" }
  | { kind: "stale"; seconds: number };

/** Alerts that are not failures. */
export const NOTES: ReadonlySet<Alert["kind"]> = new Set(["unchecked", "stale"]);

/** Return the alerts, worst first. */
export function listAlerts(
  metrics: Metrics,
  audit: Http.AuditReport | null,
  nowMs: number,
): Alert[] {
  const { latest, receivedAtMs } = metrics;
  if (latest === null) return [];
  const silent = latest.processes.filter((process) => process.is_stale);
  const reporting = latest.processes.filter((process) => !process.is_stale);
  const alerts: Alert[] = silent.map((process) => ({
    kind: "silent",
    process,
    seconds: Math.round((latest.now_ms - process.reported_ms) / 1000),
  }));
  if (!reporting.some((process) => process.kind === "gateway")) alerts.push({ kind: "noGateway" });
  const age = latest.backlog?.age_s ?? 0;
  const hasPersist = reporting.some((process) => /all|persist/.test(process.does));
  if (age > BACKLOG_AGE_MAX_S) {
    alerts.push({ kind: "backlog", seconds: Math.round(age), hasPersist });
  } else if (!hasPersist) alerts.push({ kind: "noPersist" });
  if ((audit?.findings ?? 0) > 0) alerts.push({ kind: "findings" });
  if ((audit?.failed ?? 0) > 0) alerts.push({ kind: "unchecked" });
  if (isStale(metrics, nowMs) && receivedAtMs !== null) {
    alerts.push({ kind: "stale", seconds: Math.round((nowMs - receivedAtMs) / 1000) });
  }
  return alerts;
}
