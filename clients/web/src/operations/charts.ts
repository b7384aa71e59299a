// The charts of the overview: their lines, and the format of their values.

import type { Catalog } from "../i18n";
import type { PointKey } from "./metrics";
import * as units from "./units";

/** A line of a chart. */
export interface ChartLine {
  key: PointKey;
  label: keyof Catalog["operations"]["lines"];
}

/** A chart. The axis ends at the highest value, but not below `axisMin`. */
export interface ChartInfo {
  id: keyof Catalog["operations"]["charts"];
  lines: readonly ChartLine[];
  format: (value: number | null | undefined) => string;
  axisMin: number;
  /** True if axis steps are powers of two, for bytes. */
  isBinary?: boolean;
}

/** All charts, in order. */
export const CHARTS: readonly ChartInfo[] = [
  {
    id: "connections",
    lines: [
      { key: "sessions", label: "sessions" },
      { key: "connections", label: "sockets" },
    ],
    format: units.count,
    axisMin: 4,
  },
  {
    id: "messages",
    lines: [
      { key: "sends_per_s", label: "sent" },
      { key: "persisted_per_s", label: "stored" },
      { key: "refused_per_s", label: "rejected" },
    ],
    format: units.perSecond,
    axisMin: 1,
  },
  {
    id: "fanOut",
    lines: [{ key: "pushes_per_s", label: "events" }],
    format: units.perSecond,
    axisMin: 1,
  },
  {
    id: "sendLatency",
    lines: [
      { key: "send_p50_ms", label: "p50" },
      { key: "send_p99_ms", label: "p99" },
    ],
    format: units.millis,
    axisMin: 1,
  },
  {
    id: "deliveryLatency",
    lines: [
      { key: "delivery_p50_ms", label: "p50" },
      { key: "delivery_p99_ms", label: "p99" },
    ],
    format: units.millis,
    axisMin: 1,
  },
  { id: "backlog", lines: [{ key: "backlog", label: "pending" }], format: units.count, axisMin: 4 },
  {
    id: "backlogAge",
    lines: [{ key: "backlog_age_s", label: "oldest" }],
    format: units.seconds,
    axisMin: 1,
  },
  {
    id: "storageLatency",
    lines: [{ key: "persist_p99_ms", label: "p99" }],
    format: units.millis,
    axisMin: 1,
  },
  {
    id: "loopLag",
    lines: [{ key: "loop_p99_ms", label: "p99" }],
    format: units.millis,
    axisMin: 1,
  },
  {
    id: "slowClients",
    lines: [{ key: "queue_bytes", label: "queued" }],
    format: units.bytes,
    axisMin: 1024,
    isBinary: true,
  },
  {
    id: "dynamodb",
    lines: [
      { key: "write_units_per_s", label: "write" },
      { key: "read_units_per_s", label: "read" },
    ],
    format: units.perSecond,
    axisMin: 1,
  },
  {
    id: "http",
    lines: [{ key: "http_per_s", label: "requests" }],
    format: units.perSecond,
    axisMin: 1,
  },
];
