// What the admin page knows: the points of the last ten minutes, and what was said last. Pure.

export const SPAN_MS = 600_000;
export const STALE_MS = 10_000;
const ROW_MS = 30_000;

export const noFigures = { points: [], latest: null, heardAt: null };

/** Take an answer in, heard at `now` by this machine's clock. */
export function withOverview(figures, overview, now) {
  const after = figures.points.at(-1)?.at_ms ?? 0;
  const newer = overview.points.filter((point) => point.at_ms > after);
  const oldest = overview.now_ms - SPAN_MS;
  const points = [...figures.points, ...newer].filter((point) => point.at_ms > oldest);
  return { points, latest: overview, heardAt: now };
}

/** The newest point's time: what one has need not be told again. */
export const newestOf = (figures) => figures.points.at(-1)?.at_ms ?? 0;

export const lastPoint = (figures) => figures.points.at(-1) ?? null;

/** Whether the page shows what was, and not what is. */
export const isStale = (figures, now) =>
  figures.heardAt !== null && now - figures.heardAt > STALE_MS;

/** How much of the past a chart is to show, in minutes: no more than a round time of what there is. */
export function minutesOf(points) {
  const there = points.length === 0 ? 0 : (points.at(-1).at_ms - points[0].at_ms) / 60_000;
  return [2, 5].find((minutes) => there <= minutes) ?? 10;
}

/** The values of a line, `{at, value}`; null is a hole. A time without points is one, too. */
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
 * Round steps for an axis from 0 to at least `max`: `{top, ticks}`, four or five of them. Round to
 * who counts in powers of `base`: of bytes 1,024.
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

/** Which point is nearest to a time; -1 without points. */
export function nearest(points, at) {
  let found = -1;
  for (const [number, point] of points.entries()) {
    if (found < 0 || Math.abs(point.at_ms - at) < Math.abs(points[found].at_ms - at)) found = number;
  }
  return found;
}

/** Points for a table: the newest of each half minute, the newest first. */
export function rowsOf(points) {
  const rows = new Map();
  for (const point of points) rows.set(Math.floor(point.at_ms / ROW_MS), point);
  return [...rows.values()].reverse();
}

/** What is wrong, in sentences, the worst first: `{level, text}`; level `bad` or `note`. */
export function troublesOf(figures, audit, now) {
  const { latest } = figures;
  if (latest === null) return [];
  const found = [];
  const bad = (text) => found.push({ level: "bad", text });
  const note = (text) => found.push({ level: "note", text });
  const heard = latest.processes.filter((each) => !each.is_stale);
  for (const each of latest.processes.filter((one) => one.is_stale)) {
    const silent = Math.round((latest.now_ms - each.said_ms) / 1000);
    bad(`No figures from ${nameOf(each)} for ${silent} s: it is dead, stuck, or cut off from Redis.`);
  }
  if (!heard.some((each) => each.kind === "gateway")) bad("No gateway says how it is: nobody can chat.");
  const age = latest.backlog?.age_s ?? 0;
  const hasPersist = heard.some((each) => /all|persist/.test(each.does));
  if (age > 30) {
    bad(
      hasPersist
        ? `The oldest message has been waiting ${Math.round(age)} s to be stored. See the log of \`worker persist\`.`
        : `The oldest message has been waiting ${Math.round(age)} s to be stored, and no worker persists. Start \`chatserver worker persist\`.`,
    );
  } else if (!hasPersist) {
    bad("No worker persists: messages wait in Redis. Start `chatserver worker persist`.");
  }
  if ((audit?.findings ?? 0) > 0) bad("The audit found something wrong: see below what to do.");
  if ((audit?.failed ?? 0) > 0) note("The audit could not look at some chats: a tier did not answer.");
  if (isStale(figures, now)) {
    note(`These figures are ${Math.round((now - figures.heardAt) / 1000)} s old.`);
  }
  return found;
}

/** A process, for people. */
export function nameOf({ kind, does, host, pid }) {
  return `${kind}${does ? ` ${does}` : ""} ${pid} on ${host}`;
}
