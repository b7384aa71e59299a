// Admin page (#/admin): live metrics of the installation as charts and tables. Polls the API every
// two seconds while the page is visible, and backs off while the API is unavailable.

import { AdminFailed } from "../admin.js";
import * as units from "../number_format.js";
import {
  isStale,
  lastPoint,
  newestOf,
  emptyMetrics,
  alertsOf,
  withOverview,
} from "../state/metrics.js";
import { createAudit, createBusyChats, createClients, createCost, createProcesses } from "./admin_tables.js";
import { createChart } from "./chart.js";
import { fill, h, hidden, icon, iconButton, setText, withCode } from "./dom.js";

const POLL_MS = 2000;
const POLL_MS_MAX = 30_000;
const SLOW_POLL_MS = 30_000; // audit and cost change slowly

const CHARTS = [
  {
    title: "Connections",
    about: "Open sockets and established sessions",
    lines: [{ key: "sessions", label: "sessions" }, { key: "connections", label: "sockets" }],
    format: units.count,
    least: 4,
  },
  {
    title: "Messages",
    about: "Acknowledged, stored in DynamoDB, and rejected",
    lines: [
      { key: "sends_per_s", label: "sent" },
      { key: "persisted_per_s", label: "stored" },
      { key: "refused_per_s", label: "rejected" },
    ],
    format: units.perSecond,
  },
  {
    title: "Fan-out",
    about: "Events sent to devices",
    lines: [{ key: "pushes_per_s", label: "events" }],
    format: units.perSecond,
  },
  {
    title: "Send latency",
    about: "From send to acknowledgment",
    lines: [{ key: "send_p50_ms", label: "p50" }, { key: "send_p99_ms", label: "p99" }],
    format: units.millis,
  },
  {
    title: "Delivery latency",
    about: "From commit to the recipients' sockets",
    lines: [{ key: "delivery_p50_ms", label: "p50" }, { key: "delivery_p99_ms", label: "p99" }],
    format: units.millis,
  },
  {
    title: "Backlog",
    about: "Committed in Redis, not yet in DynamoDB",
    lines: [{ key: "backlog", label: "pending" }],
    format: units.count,
    least: 4,
  },
  {
    title: "Backlog age",
    about: "Age of the oldest message not yet in DynamoDB",
    lines: [{ key: "backlog_age_s", label: "oldest" }],
    format: units.seconds,
  },
  {
    title: "Storage latency",
    about: "From commit to DynamoDB, by batch",
    lines: [{ key: "persist_p99_ms", label: "p99" }],
    format: units.millis,
  },
  {
    title: "Event loop lag",
    about: "Delay of scheduled callbacks",
    lines: [{ key: "loop_p99_ms", label: "p99" }],
    format: units.millis,
  },
  {
    title: "Slow clients",
    about: "Bytes queued for clients that read too slowly",
    lines: [{ key: "queue_bytes", label: "queued" }],
    format: units.bytes,
    least: 1024,
    base: 1024,
  },
  {
    title: "DynamoDB",
    about: "Consumed capacity units, as reported by DynamoDB",
    lines: [{ key: "write_units_per_s", label: "write" }, { key: "read_units_per_s", label: "read" }],
    format: units.perSecond,
  },
  {
    title: "HTTP",
    about: "API requests, including those of this page",
    lines: [{ key: "http_per_s", label: "requests" }],
    format: units.perSecond,
  },
];

/** `onBack()` returns to the chats. */
export function createAdminPage({ admin, onBack }) {
  const title = h("h2", { class: "people-title", tabindex: -1 }, "Operations");
  const subtitle = h("p", { class: "people-subtitle", role: "status" });
  const content = h("div", { class: "admin-column" });
  const element = h(
    "main",
    { class: "admin", id: "admin", hidden: true, aria: { label: "Operations" } },
    h(
      "header",
      { class: "chat-head" },
      iconButton("back", "Back to chats", onBack, { class: "admin-back" }),
      h("div", { class: "chat-names" }, title, subtitle),
    ),
    h("div", { class: "admin-scroller", tabindex: 0, role: "region", aria: { label: "Metrics" } }, content),
  );
  let isOpen = false;
  let timer = null;
  let waitMs = POLL_MS;
  let metrics = emptyMetrics;
  let slow = { audit: null, cost: null, loadedAt: 0 };
  let dashboard = null;

  function open() {
    if (isOpen) return;
    isOpen = true;
    element.hidden = false;
    document.addEventListener("visibilitychange", onVisibilityChange);
    showNote(h("span", { class: "spinner" }), hidden("Loading metrics"));
    title.focus();
    poll();
  }

  function close() {
    if (!isOpen) return;
    isOpen = false;
    element.hidden = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onVisibilityChange);
    dashboard?.stop();
    dashboard = null;
    fill(content);
  }

  function onVisibilityChange() {
    if (!document.hidden) poll();
  }

  async function poll() {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const overview = await admin.overview(newestOf(metrics));
      metrics = withOverview(metrics, overview, Date.now());
      waitMs = POLL_MS;
      if (Date.now() - slow.loadedAt > SLOW_POLL_MS) {
        const [audit, cost] = await Promise.all([admin.audit(), admin.cost()]);
        slow = { audit, cost, loadedAt: Date.now() };
      }
      if (isOpen) draw(null);
    } catch (problem) {
      if (!(problem instanceof AdminFailed)) throw problem;
      if (!isOpen) return;
      if (problem.isForbidden) {
        showForbidden(problem.message);
        return;
      }
      waitMs = Math.min(waitMs * 2, POLL_MS_MAX);
      draw(problem.message);
    }
    clearTimeout(timer);
    if (isOpen) timer = setTimeout(poll, waitMs);
  }

  function draw(problem) {
    if (metrics.latest === null) {
      showNote(
        h("h3", {}, "No metrics available"),
        h("p", { role: "alert" }, ...withCode(problem)),
        h("p", { class: "hint" }, `Retrying in ${Math.round(waitMs / 1000)} s.`),
        h("button", { type: "button", class: "button", on: { click: poll } }, "Retry now"),
      );
      return;
    }
    if (dashboard === null) {
      dashboard = createDashboard();
      fill(content, ...dashboard.elements);
    }
    const now = Date.now();
    const old = isStale(metrics, now) || problem !== null;
    content.classList.toggle("is-old", old);
    setText(subtitle, old ? `Last updated ${units.ago(metrics.receivedAt, now)}` : "Live, last 10 minutes");
    dashboard.update(metrics, slow, problem, now);
  }

  function showNote(...parts) {
    dashboard?.stop();
    dashboard = null;
    fill(content, h("div", { class: "admin-note" }, ...parts));
  }

  function showForbidden(text) {
    setText(subtitle, "");
    showNote(
      h("span", { class: "empty-art" }, icon("pulse")),
      h("h3", {}, "Admins only"),
      h("p", { role: "alert" }, text),
      h(
        "p",
        { class: "hint" },
        ...withCode(
          "To get access, add your username to `CHAT_AUTH_ADMINS`, then restart `chatserver api`.",
        ),
      ),
      h("button", { type: "button", class: "button", on: { click: onBack } }, "Back to chats"),
    );
  }

  return { element, open, close };
}

function createDashboard() {
  const alerts = h("ul", { class: "admin-troubles", role: "list", aria: { label: "Alerts", live: "polite" } });
  const tiles = ["Sessions", "Messages sent", "Delivery latency", "Backlog", "DynamoDB today"].map(
    createTile,
  );
  const charts = CHARTS.map(createChart);
  const parts = [createProcesses(), createBusyChats(), createClients(), createAudit(), createCost()];
  const elements = [
    alerts,
    h("dl", { class: "admin-tiles" }, ...tiles.map((tile) => tile.element)),
    h(
      "section",
      { aria: { label: "Charts" } },
      h("h3", { class: "sr-only" }, "Charts"),
      h("div", { class: "admin-charts" }, ...charts.map((chart) => chart.element)),
    ),
    h("div", { class: "admin-parts" }, ...parts.map((part) => part.element)),
  ];
  let shownText = null;

  function update(metrics, slow, problem, now) {
    const found = alertsOf(metrics, slow.audit, now);
    if (problem !== null) found.unshift({ level: "bad", text: problem });
    if (found.length === 0) found.push({ level: "ok", text: "All systems operational." });
    const text = found.map((each) => each.text).join("\n");
    if (text !== shownText) fill(alerts, ...found.map(trouble)); // live region: changes are announced
    shownText = text;
    const point = lastPoint(metrics);
    const today = slow.cost?.days[0] ?? null;
    tiles[0].set(units.count(point?.sessions), units.counted(point?.connections, "open socket"));
    tiles[1].set(units.perSecond(point?.sends_per_s), `${units.perSecond(point?.refused_per_s)} rejected`);
    tiles[2].set(units.millis(point?.delivery_p99_ms), "99th percentile");
    tiles[3].set(units.count(point?.backlog), `oldest message: ${units.seconds(point?.backlog_age_s)}`);
    tiles[4].set(
      today?.usd === null ? units.count(sumOf(today, "write_units")) : units.dollars(today?.usd),
      today?.usd === null ? "write units (provisioned capacity)" : `${units.counted(today?.messages, "message")} stored`,
    );
    for (const chart of charts) chart.update(metrics);
    for (const part of parts) part.update(metrics.latest, slow, now);
  }

  return { elements, update, stop: () => charts.forEach((chart) => chart.stop()) };
}

const sumOf = (day, key) => day?.features.reduce((sum, each) => sum + each[key], 0);

function trouble({ level, text }) {
  const name = level === "ok" ? "check" : "alert";
  return h("li", { class: `admin-trouble is-${level}` }, icon(name), h("span", {}, ...withCode(text)));
}

function createTile(label) {
  const value = h("dd", { class: "tile-value" });
  const more = h("dd", { class: "tile-more" });
  return {
    element: h("div", { class: "tile card" }, h("dt", {}, label), value, more),
    set(text, about) {
      setText(value, text);
      setText(more, about);
    },
  };
}
