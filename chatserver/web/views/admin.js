// The page of who operates the installation (#/admin): how it is, as charts and tables. Asks the
// API every other second while somebody looks, and less often while it does not answer.

import { AdminFailed } from "../admin.js";
import * as units from "../quantities.js";
import {
  isStale,
  lastPoint,
  newestOf,
  noFigures,
  troublesOf,
  withOverview,
} from "../state/figures.js";
import { createAudit, createBusyChats, createClients, createCost, createProcesses } from "./adminparts.js";
import { createChart } from "./chart.js";
import { fill, h, hidden, icon, iconButton, setText } from "./dom.js";

const AGAIN_MS = 2000;
const AGAIN_MS_MAX = 30_000;
const SELDOM_MS = 30_000; // what changes slowly: audit and cost

const CHARTS = [
  {
    title: "Connections",
    about: "Open sockets, and those that said hello",
    lines: [{ key: "sessions", label: "sessions" }, { key: "connections", label: "sockets" }],
    format: units.count,
    least: 4,
  },
  {
    title: "Messages",
    about: "Acked to senders, stored in DynamoDB, refused",
    lines: [
      { key: "sends_per_s", label: "sent" },
      { key: "persisted_per_s", label: "stored" },
      { key: "refused_per_s", label: "refused" },
    ],
    format: units.perSecond,
  },
  {
    title: "Fan-out",
    about: "Events written to devices",
    lines: [{ key: "pushes_per_s", label: "events" }],
    format: units.perSecond,
  },
  {
    title: "Send latency",
    about: "From a send to its ack",
    lines: [{ key: "send_p50_ms", label: "half" }, { key: "send_p99_ms", label: "99 %" }],
    format: units.millis,
  },
  {
    title: "Delivery latency",
    about: "From the commit to the sockets of recipients",
    lines: [{ key: "delivery_p50_ms", label: "half" }, { key: "delivery_p99_ms", label: "99 %" }],
    format: units.millis,
  },
  {
    title: "Backlog",
    about: "Committed in Redis, not yet in DynamoDB",
    lines: [{ key: "backlog", label: "waiting" }],
    format: units.count,
    least: 4,
  },
  {
    title: "Backlog age",
    about: "How long the oldest of it has been waiting",
    lines: [{ key: "backlog_age_s", label: "oldest" }],
    format: units.seconds,
  },
  {
    title: "Until stored",
    about: "From the commit to DynamoDB, 99 % of batches",
    lines: [{ key: "persist_p99_ms", label: "99 %" }],
    format: units.millis,
  },
  {
    title: "Event loops",
    about: "How late they run what is due",
    lines: [{ key: "loop_p99_ms", label: "99 %" }],
    format: units.millis,
  },
  {
    title: "Slow clients",
    about: "Bytes that wait for clients that do not take them",
    lines: [{ key: "queue_bytes", label: "waiting" }],
    format: units.bytes,
    least: 1024,
    base: 1024,
  },
  {
    title: "DynamoDB",
    about: "Capacity units, as DynamoDB counts them",
    lines: [{ key: "write_units_per_s", label: "write" }, { key: "read_units_per_s", label: "read" }],
    format: units.perSecond,
  },
  {
    title: "HTTP",
    about: "Requests to the API, those of this page among them",
    lines: [{ key: "http_per_s", label: "requests" }],
    format: units.perSecond,
  },
];

/** `onBack()` leads to the chats. */
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
      iconButton("back", "Back to the chats", onBack, { class: "admin-back" }),
      h("div", { class: "chat-names" }, title, subtitle),
    ),
    h("div", { class: "admin-scroller", tabindex: 0, role: "region", aria: { label: "Figures" } }, content),
  );
  let isOpen = false;
  let timer = null;
  let waitMs = AGAIN_MS;
  let figures = noFigures;
  let slow = { audit: null, cost: null, askedAt: 0 };
  let dashboard = null;

  function open() {
    if (isOpen) return;
    isOpen = true;
    element.hidden = false;
    document.addEventListener("visibilitychange", onSight);
    showNote(h("span", { class: "spinner" }), hidden("Loading the figures"));
    title.focus();
    ask();
  }

  function close() {
    if (!isOpen) return;
    isOpen = false;
    element.hidden = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onSight);
    dashboard?.stop();
    dashboard = null;
    fill(content);
  }

  function onSight() {
    if (!document.hidden) ask();
  }

  async function ask() {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const overview = await admin.overview(newestOf(figures));
      figures = withOverview(figures, overview, Date.now());
      waitMs = AGAIN_MS;
      if (Date.now() - slow.askedAt > SELDOM_MS) {
        const [audit, cost] = await Promise.all([admin.audit(), admin.cost()]);
        slow = { audit, cost, askedAt: Date.now() };
      }
      if (isOpen) draw(null);
    } catch (problem) {
      if (!(problem instanceof AdminFailed)) throw problem;
      if (!isOpen) return;
      if (problem.isForbidden) {
        showForbidden(problem.message);
        return;
      }
      waitMs = Math.min(waitMs * 2, AGAIN_MS_MAX);
      draw(problem.message);
    }
    clearTimeout(timer);
    if (isOpen) timer = setTimeout(ask, waitMs);
  }

  function draw(problem) {
    if (figures.latest === null) {
      showNote(
        h("h3", {}, "No figures"),
        h("p", { role: "alert" }, ...withCode(problem)),
        h("p", { class: "hint" }, `Asks again in ${Math.round(waitMs / 1000)} s.`),
        h("button", { type: "button", class: "button", on: { click: ask } }, "Ask now"),
      );
      return;
    }
    if (dashboard === null) {
      dashboard = createDashboard();
      fill(content, ...dashboard.elements);
    }
    const now = Date.now();
    const old = isStale(figures, now) || problem !== null;
    content.classList.toggle("is-old", old);
    setText(subtitle, old ? `As of ${units.ago(figures.heardAt, now)}` : "Now, and the last ten minutes");
    dashboard.update(figures, slow, problem, now);
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
      h("h3", {}, "For admins"),
      h("p", { role: "alert" }, text),
      h(
        "p",
        { class: "hint" },
        ...withCode(
          "Who operates it puts your user name into `CHAT_AUTH_ADMINS` and starts `chatserver api` again.",
        ),
      ),
      h("button", { type: "button", class: "button", on: { click: onBack } }, "Back to the chats"),
    );
  }

  return { element, open, close };
}

function createDashboard() {
  const troubles = h("ul", { class: "admin-troubles", role: "list", aria: { label: "What is wrong", live: "polite" } });
  const tiles = ["Sessions", "Messages sent", "Delivered within", "Waiting to be stored", "Today"].map(
    createTile,
  );
  const charts = CHARTS.map(createChart);
  const parts = [createProcesses(), createBusyChats(), createClients(), createAudit(), createCost()];
  const elements = [
    troubles,
    h("dl", { class: "admin-tiles" }, ...tiles.map((tile) => tile.element)),
    h(
      "section",
      { aria: { label: "Charts" } },
      h("h3", { class: "sr-only" }, "Charts"),
      h("div", { class: "admin-charts" }, ...charts.map((chart) => chart.element)),
    ),
    h("div", { class: "admin-parts" }, ...parts.map((part) => part.element)),
  ];
  let said = null;

  function update(figures, slow, problem, now) {
    const found = troublesOf(figures, slow.audit, now);
    if (problem !== null) found.unshift({ level: "bad", text: problem });
    if (found.length === 0) found.push({ level: "ok", text: "Everything looks well." });
    const text = found.map((each) => each.text).join("\n");
    if (text !== said) fill(troubles, ...found.map(trouble)); // a live region says what changes
    said = text;
    const point = lastPoint(figures);
    const today = slow.cost?.days[0] ?? null;
    tiles[0].set(units.count(point?.sessions), `on ${units.counted(point?.connections, "socket")}`);
    tiles[1].set(units.perSecond(point?.sends_per_s), `${units.perSecond(point?.refused_per_s)} refused`);
    tiles[2].set(units.millis(point?.delivery_p99_ms), "99 % of events, just now");
    tiles[3].set(units.count(point?.backlog), `oldest ${units.seconds(point?.backlog_age_s)}`);
    tiles[4].set(
      today?.usd === null ? units.count(sumOf(today, "write_units")) : units.dollars(today?.usd),
      today?.usd === null ? "write units (capacity is provisioned)" : `${units.counted(today?.messages, "message")} stored`,
    );
    for (const chart of charts) chart.update(figures);
    for (const part of parts) part.update(figures.latest, slow, now);
  }

  return { elements, update, stop: () => charts.forEach((chart) => chart.stop()) };
}

const sumOf = (day, key) => day?.features.reduce((sum, each) => sum + each[key], 0);

function trouble({ level, text }) {
  const name = level === "ok" ? "check" : "alert";
  return h("li", { class: `admin-trouble is-${level}` }, icon(name), h("span", {}, ...withCode(text)));
}

/** Text with `code` in backticks. */
export function withCode(text) {
  return text.split("`").map((piece, at) => (at % 2 === 1 ? h("code", {}, piece) : piece));
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
