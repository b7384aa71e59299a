// Metrics of the operations page: points of the last ten minutes. Pure functions.

import type { Http } from "tierchat";

const SPAN_MS = 600_000;
/** The age from which metrics are shown as outdated. */
export const STALE_MS = 10_000;

/** Data points and the latest overview, received at `receivedAtMs` by the local clock. */
export interface Metrics {
  points: readonly Http.Point[];
  latest: Http.Overview | null;
  receivedAtMs: number | null;
}

/** No metrics yet. */
export const EMPTY_METRICS: Metrics = { points: [], latest: null, receivedAtMs: null };

/** Return the metrics with a new response. */
export function addOverview(metrics: Metrics, overview: Http.Overview, nowMs: number): Metrics {
  const newestMs = getNewestTime(metrics);
  const oldestMs = overview.now_ms - SPAN_MS;
  const added = overview.points.filter((point) => point.at_ms > newestMs);
  const points = [...metrics.points, ...added].filter((point) => point.at_ms > oldestMs);
  return { points, latest: overview, receivedAtMs: nowMs };
}

/** Return the time of the newest point; only newer points are requested. */
export function getNewestTime(metrics: Metrics): number {
  return metrics.points.at(-1)?.at_ms ?? 0;
}

/** Return whether the metrics are outdated. */
export function isStale(metrics: Metrics, nowMs: number): boolean {
  return metrics.receivedAtMs !== null && nowMs - metrics.receivedAtMs > STALE_MS;
}

/** Numeric fields of a point. */
export type PointKey = Exclude<keyof Http.Point, "at_ms">;

/** The times of a chart in seconds, then the values of each line. Null is a gap in the line. */
export type Columns = [number[], ...(number | null)[][]];

/**
 * Return the columns of a chart: times in seconds, then a column per key.
 *
 * Null is a gap in the line. A period without points is a gap.
 */
export function buildColumns(
  points: readonly Http.Point[],
  keys: readonly PointKey[],
  everyMs: number,
): Columns {
  const times: number[] = [];
  const columns: (number | null)[][] = keys.map(() => []);
  let previousMs: number | null = null;
  for (const point of points) {
    if (previousMs !== null && point.at_ms - previousMs > 3 * everyMs) {
      times.push((previousMs + everyMs) / 1000);
      for (const column of columns) column.push(null);
    }
    times.push(point.at_ms / 1000);
    keys.forEach((key, number) => columns[number]?.push(point[key] ?? null));
    previousMs = point.at_ms;
  }
  return [times, ...columns];
}

/**
 * Return the times, the columns without the values between two gaps, then columns with only these.
 *
 * The chart shows the latter as dots.
 */
export function splitLonePoints([times, ...columns]: Columns): Columns {
  const isLone = (value: number | null, index: number, column: (number | null)[]): boolean =>
    value !== null && (column[index - 1] ?? null) === null && (column[index + 1] ?? null) === null;
  const keep = (areLone: boolean) =>
    columns.map((column) =>
      column.map((value, index) => (isLone(value, index, column) === areLone ? value : null)),
    );
  return [times, ...keep(false), ...keep(true)];
}

/** Return points for a table: the last point of each half minute, newest first. */
export function listTableRows(points: readonly Http.Point[]): Http.Point[] {
  const rows = new Map(points.map((point) => [Math.floor(point.at_ms / 30_000), point]));
  return [...rows.values()].reverse();
}

const DAY_S = 86_400;

/** Return the cost per day in USD at the current rate; null with provisioned capacity. */
export function computeCostPerDay(
  units: readonly Http.Units[],
  cost: Http.CostReport,
): number | null {
  const { write_unit_usd: write, read_unit_usd: read } = cost;
  if (write === null || read === null) return null;
  return units.reduce(
    (sum, { write_per_s, read_per_s }) => sum + (write_per_s * write + read_per_s * read) * DAY_S,
    0,
  );
}
