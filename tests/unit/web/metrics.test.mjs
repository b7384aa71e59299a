// Metrics of the admin page: merging, gaps, axes, alerts and number formats.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as units from "../../../chatserver/web/number_format.js";
import {
  axisOf,
  isStale,
  lineOf,
  minutesOf,
  nearest,
  newestOf,
  emptyMetrics,
  rowsOf,
  alertsOf,
  withOverview,
} from "../../../chatserver/web/state/metrics.js";

const point = (at_ms, more = {}) => ({ at_ms, sessions: 1, ...more });
const process = (kind, more = {}) => ({
  kind, does: "", host: "h", pid: 1, said_ms: 10_000, is_stale: false, ...more,
});
const overview = (now_ms, points, more = {}) => ({
  now_ms, every_ms: 2000, points, processes: [], backlog: null, ...more,
});

test("points of two responses are merged, limited to ten minutes, each once", () => {
  const first = withOverview(emptyMetrics, overview(4000, [point(2000), point(4000)]), 1);
  const both = withOverview(first, overview(6000, [point(4000), point(6000)]), 2);
  const late = withOverview(both, overview(603_000, [point(602_000)]), 3);

  assert.deepEqual(both.points.map((each) => each.at_ms), [2000, 4000, 6000]);
  assert.equal(newestOf(both), 6000);
  assert.deepEqual(late.points.map((each) => each.at_ms), [4000, 6000, 602_000]);
});

test("metrics without a response for ten seconds are stale", () => {
  const metrics = withOverview(emptyMetrics, overview(2000, [point(2000)]), 100_000);

  assert.equal(isStale(emptyMetrics, 1e9), false);
  assert.equal(isStale(metrics, 110_000), false);
  assert.equal(isStale(metrics, 110_001), true);
});

test("a line has a gap where there are no points", () => {
  const line = lineOf([point(2000), point(4000, { sessions: null }), point(20_000)], "sessions", 2000);

  assert.deepEqual(line.map((each) => each.value), [1, null, null, 1]);
});

test("axes have round ticks that reach the maximum", () => {
  for (const max of [0, 0.003, 0.7, 1, 3, 7, 24, 99, 101, 4321, 123_456_789]) {
    const { top, ticks } = axisOf(max, 0.001);
    assert.ok(top >= max, String(max));
    assert.ok(ticks.length >= 3 && ticks.length <= 6, `${max}: ${ticks}`);
    assert.equal(ticks[0], 0);
  }
  assert.deepEqual(axisOf(0, 4).ticks, [0, 1, 2, 3, 4]);
  assert.deepEqual(axisOf(3 * 2 ** 20, 1024, 1024).ticks.map(units.bytes), [
    "0 B", "1 MB", "2 MB", "3 MB",
  ]);
});

test("the point at the cursor and the table rows are found", () => {
  const points = Array.from({ length: 40 }, (_, n) => point((n + 1) * 2000));

  assert.equal(nearest(points, 4900), 1);
  assert.equal(nearest([], 4900), -1);
  assert.deepEqual(rowsOf(points).map((each) => each.at_ms), [80_000, 58_000, 28_000]);
  assert.equal(minutesOf(points), 2);
  assert.equal(minutesOf([point(0), point(300_001)]), 10);
});

test("alerts name the problem and the remedy", () => {
  const well = [process("gateway"), process("worker", { does: "all" })];
  const alertTexts = (processes, more = {}, audit = null) =>
    alertsOf(withOverview(emptyMetrics, overview(40_000, [], { processes, ...more }), 0), audit, 0)
      .map((each) => each.text)
      .join(" ");

  assert.equal(alertTexts(well), "");
  assert.match(alertTexts([...well, process("api", { is_stale: true })]), /No report from api 1 on h for 30 s/);
  assert.match(alertTexts([process("gateway")]), /No persist worker is running/);
  assert.match(alertTexts([process("worker", { does: "all" })]), /No gateway is reporting/);
  assert.match(alertTexts(well, { backlog: { entries: 9, age_s: 31 } }), /has waited 31 s/);
  assert.match(alertTexts(well, {}, { findings: 1, failed: 0 }), /audit found problems/);
});

test("numbers have few digits and a unit", () => {
  assert.deepEqual([0, 7, 12.34, 999, 1420, 5e7].map(units.count), ["0", "7", "12.3", "999", "1.42 k", "50 M"]);
  assert.deepEqual([null, 0.42, 1500].map(units.millis), ["–", "0.42 ms", "1.5 s"]);
  assert.deepEqual([0, 0.018, 59, 61, 7200, 200_000].map(units.seconds), ["0 s", "18 ms", "59 s", "1.02 min", "2 h", "2.31 d"]);
  assert.deepEqual([0, 0.0000024, 5.918, 1234.5, null].map(units.dollars), ["$0", "$0.0000024", "$5.92", "$1,235", "–"]);
  assert.deepEqual([0, 1, 2, 1420].map((n) => units.counted(n, "socket")), ["0 sockets", "1 socket", "2 sockets", "1.42 k sockets"]);
  assert.equal(units.counted(1, "entry", "entries"), "1 entry");
  assert.equal(units.counted(null, "chat"), "– chats");
  assert.equal(units.ago(null, 5), "never");
  assert.equal(units.ago(1000, 61_000), "1 min ago");
});
