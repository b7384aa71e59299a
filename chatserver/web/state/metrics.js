// Metrics of the admin page: data points of the last ten minutes and the latest overview. Pure.

export const SPAN_MS = 600_000;
export const STALE_MS = 10_000;
const ROW_MS = 30_000;

export const emptyMetrics = { points: [], latest: null, receivedAt: null };

/** Add a response, received at `now` by the local clock. */
export function withOverview(metrics, overview, now) {
  const after = metrics.points.at(-1)?.at_ms ?? 0;
  const newer = overview.points.filter((point) => point.at_ms > after);
  const oldest = overview.now_ms - SPAN_MS;
  const points = [...metrics.points, ...newer].filter((point) => point.at_ms > oldest);
  return { points, latest: overview, receivedAt: now };
}

/** The time of the newest point; only newer ones are requested. */
export const newestOf = (metrics) => metrics.points.at(-1)?.at_ms ?? 0;

export const lastPoint = (metrics) => metrics.points.at(-1) ?? null;

/** Return whether the metrics are outdated. */
export const isStale = (metrics, now) =>
  metrics.receivedAt !== null && now - metrics.receivedAt > STALE_MS;

/** The time range of the charts in minutes: 2, 5 or 10, as far as there are points. */
export function minutesOf(points) {
  const there = points.length === 0 ? 0 : (points.at(-1).at_ms - points[0].at_ms) / 60_000;
  return [2, 5].find((minutes) => there <= minutes) ?? 10;
}

/** The values of a line, `{at, value}`; null is a gap, as is a time without points. */
export function lineOf(points, key, everyMs) {
  const line = [];
  let before = null;
  for (const point of points) {
    if (before !== null && point.at_ms - before > 3 * everyMs) {
      line.push({ at: before + everyMs, value: null });
    }
    line.push({ at: point.at_ms, value: point[key] ?? null });
    before = point.at_ms;
  }
  return line;
}

/**
 * Ticks of an axis from 0 to at least `max`: `{top, ticks}`, four or five of them, round in powers
 * of `base` (1,024 for bytes).
 */
export function axisOf(max, least = 1, base = 10) {
  const scale = base === 10 ? 1 : base ** Math.max(0, Math.floor(Math.log(Math.max(max, least)) / Math.log(base)));
  const wanted = Math.max(max, least) / scale;
  const rough = wanted / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.9999);
  const steps = Math.ceil(wanted / step - 1e-9);
  const ticks = Array.from({ length: steps + 1 }, (_, n) => Number((n * step * scale).toPrecision(12)));
  return { top: ticks.at(-1), ticks };
}

/** The index of the point nearest to a time; -1 without points. */
export function nearest(points, at) {
  let found = -1;
  for (const [number, point] of points.entries()) {
    if (found < 0 || Math.abs(point.at_ms - at) < Math.abs(points[found].at_ms - at)) found = number;
  }
  return found;
}

/** Points for a table: the last of each half minute, newest first. */
export function rowsOf(points) {
  const rows = new Map();
  for (const point of points) rows.set(Math.floor(point.at_ms / ROW_MS), point);
  return [...rows.values()].reverse();
}

/** Alerts, worst first: `{level, text}`; level `bad` or `note`. */
export function alertsOf(metrics, audit, now) {
  const { latest } = metrics;
  if (latest === null) return [];
  const found = [];
  const bad = (text) => found.push({ level: "bad", text });
  const note = (text) => found.push({ level: "note", text });
  const reporting = latest.processes.filter((each) => !each.is_stale);
  for (const each of latest.processes.filter((one) => one.is_stale)) {
    const silent = Math.round((latest.now_ms - each.said_ms) / 1000);
    bad(`No report from ${nameOf(each)} for ${silent} s. It is down, stuck, or disconnected from Redis.`);
  }
  if (!reporting.some((each) => each.kind === "gateway")) bad("No gateway is reporting. Chat is down.");
  const age = latest.backlog?.age_s ?? 0;
  const hasPersist = reporting.some((each) => /all|persist/.test(each.does));
  if (age > 30) {
    bad(
      hasPersist
        ? `The oldest message has waited ${Math.round(age)} s to be stored. Check the log of \`worker persist\`.`
        : `The oldest message has waited ${Math.round(age)} s to be stored, and no persist worker is running. Start \`chatserver worker persist\`.`,
    );
  } else if (!hasPersist) {
    bad("No persist worker is running. Messages wait in Redis. Start `chatserver worker persist`.");
  }
  if ((audit?.findings ?? 0) > 0) bad("The audit found problems. See the audit section below.");
  if ((audit?.failed ?? 0) > 0) note("The audit couldn't check some chats: a data store did not respond.");
  if (isStale(metrics, now)) {
    note(`These metrics are ${Math.round((now - metrics.receivedAt) / 1000)} s old.`);
  }
  return found;
}

/** The display name of a process. */
export function nameOf({ kind, does, host, pid }) {
  return `${kind}${does ? ` ${does}` : ""} ${pid} on ${host}`;
}
