// Tables of the admin page: processes, busiest chats, slow clients, audit and cost.

import * as units from "../number_format.js";
import { createBar, createTable } from "./chart.js";
import { fill, h, withCode } from "./dom.js";

const DAY_S = 86_400;
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });

/** A card with a heading. `draw(...)` returns `{key, parts()}`; it is redrawn only if `key` changed. */
function createSection(title, about, draw, extra = "") {
  const body = h("div", { class: "part-body" });
  const element = h(
    "section",
    { class: `card part ${extra}`.trim(), aria: { label: title } },
    h("h3", { class: "part-title" }, title),
    h("p", { class: "chart-about" }, ...withCode(about)),
    body,
  );
  let shown = null;
  function update(...facts) {
    const { key, parts } = draw(...facts);
    if (key === shown) return;
    shown = key;
    // Keep the scroll positions of redrawn tables.
    const before = [...body.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
    fill(body, ...parts());
    for (const [at, one] of [...body.querySelectorAll(".scroll")].entries()) {
      one.scrollTo(...(before[at] ?? [0, 0]));
    }
  }
  return { element, update };
}

function scrolling(label, ...children) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", aria: { label } }, ...children);
}

const CLOSES = {
  1000: "closed",
  1001: "going away",
  1006: "connection lost",
  3000: "shutdown",
  3001: "slow client",
  3002: "overloaded",
  3003: "ping timeout",
  3004: "replaced",
  3500: "unauthenticated",
};

const none = (text) => h("p", { class: "part-none" }, ...withCode(text));
const name = (text) => h("code", { class: "part-name" }, text);

export function createProcesses() {
  return createSection(
    "Processes",
    "Each process reports every 2 seconds. After a minute without a report it is removed from the list.",
    ({ processes, now_ms }) => ({
      key: JSON.stringify([processes, now_ms]),
      parts: () => [
        processes.length === 0
          ? none("No processes are running. Start `chatserver gateway` and `chatserver worker all`.")
          : scrolling(
              "Processes",
              createTable(
                ["Process", "Status", "Uptime", "CPU", "Sessions", "Sends", "Loop lag"],
                processes.map((each) => processRow(each, now_ms)),
                "Processes",
              ),
            ),
      ],
    }),
    "part-wide",
  );
}

function processRow(each, now) {
  const isGateway = each.kind === "gateway";
  const silent = `no report for ${units.seconds(Math.round((now - each.said_ms) / 1000))}`;
  return [
    h("span", {}, h("strong", {}, each.does === "" ? each.kind : `${each.kind} ${each.does}`), h("small", {}, `${each.host} · ${each.pid}`)),
    h("span", { class: each.is_stale ? "state is-bad" : "state is-ok" }, each.is_stale ? silent : "healthy"),
    units.seconds(Math.round((now - each.started_ms) / 1000)),
    units.share(each.cpu_share),
    isGateway ? units.count(each.connections) : "–",
    isGateway ? units.perSecond(each.sends_per_s) : "–",
    units.millis(each.loop_p99_ms),
  ];
}

export function createBusyChats() {
  return createSection(
    "Busiest chats",
    "Messages stored in the last minute, by chat. Very busy chats are sharded automatically.",
    ({ top_chats: chats }) => ({
      key: JSON.stringify(chats),
      parts: () => [
        chats.length === 0
          ? none("No messages were stored in the last minute.")
          : h("ol", { class: "bars" }, ...chats.slice(0, 10).map((each) => barLine(each, chats[0].messages))),
      ],
    }),
  );
}

function barLine({ chat, messages, per_s }, most) {
  return h(
    "li",
    { class: "bar-line" },
    name(chat),
    h("span", { class: "bar-value" }, `${units.count(messages)} · ${units.perSecond(per_s)}`),
    createBar(messages / most),
  );
}

export function createClients() {
  return createSection(
    "Slow and rejected clients",
    "A client that reads too slowly is disconnected with code 3001. It reconnects and receives what it missed.",
    ({ slow, queues, refused, limited, closes, now_ms }) => ({
      key: JSON.stringify([slow, queues, refused, limited, closes, slow.length > 0 && Math.floor(now_ms / 10_000)]),
      parts: () => [
        h("h4", {}, "Longest queues"),
        queues.length === 0
          ? none("No client is falling behind.")
          : scrolling("Longest queues", createTable(["User", "Device", "Queued"], queues.map((each) => [name(each.user), each.device, units.bytes(each.waiting_bytes)]), "Longest queues")),
        h("h4", {}, "Disconnected for reading too slowly"),
        slow.length === 0
          ? none("None recently.")
          : scrolling("Disconnected for reading too slowly", createTable(["User", "Device", "When", "Queued"], slow.map((each) => [name(each.user), each.device, units.ago(each.at_ms, now_ms), units.bytes(each.waiting_bytes)]), "Disconnected for reading too slowly")),
        ...counts("Rejected sends, by reason", refused),
        ...counts("Rate limits reached", limited),
        ...counts("Closed connections, by code", closes, CLOSES),
      ],
    }),
  );
}

function counts(title, list, words = {}) {
  if (list.length === 0) return [];
  const items = list.slice(0, 8).map((each) => h("li", {}, h("code", {}, each.name), ` ${words[each.name] ?? ""} ${units.perSecond(each.per_s)}`));
  return [h("h4", {}, title), h("ul", { class: "chips" }, ...items)];
}

export function createAudit() {
  return createSection(
    "Audit",
    "Compares Redis, DynamoDB and S3 for each chat (`chatserver worker audit`).",
    (_, { audit }, now) => ({
      key: JSON.stringify([audit, Math.floor(now / 30_000)]),
      parts: () => (audit === null ? [none("Loading…")] : auditParts(audit, now)),
    }),
  );
}

function auditParts(audit, now) {
  if (audit.newest_ms === null) {
    return [none("No audit has completed yet. To run audits continuously, start `chatserver worker audit`.")];
  }
  const facts = [
    ["Last run", units.ago(audit.newest_ms, now)],
    ["Partitions", `${audit.audited} of ${audit.partitions} audited; oldest audit ${units.ago(audit.oldest_ms, now)}`],
    ["Checked", `${units.counted(audit.chats, "chat")}, ${units.counted(audit.entries, "entry", "entries")}`],
    ["Could not be checked", units.counted(audit.failed, "chat")],
    ["Findings", units.count(audit.findings)],
  ];
  return [
    h("dl", { class: "facts" }, ...facts.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)])),
    audit.latest.length === 0
      ? none("No findings.")
      : scrolling("Findings", h("ul", { class: "findings" }, ...audit.latest.map(finding))),
  ];
}

function finding(each) {
  const place = each.last === each.first ? `seq ${each.first}` : `seq ${each.first} to ${each.last}`;
  return h(
    "li",
    { class: "finding" },
    h("p", {}, h("strong", {}, `${each.category}: `), each.meaning),
    h("p", { class: "chart-about" }, name(each.chat), ` ${place} · ${CLOCK.format(each.at_ms)}`),
    h("p", {}, each.advice),
  );
}

export function createCost() {
  return createSection(
    "DynamoDB cost",
    "Consumed units at on-demand prices. For a full report, run `chatserver cost`.",
    ({ units: now }, { cost }) => ({
      key: JSON.stringify([now, cost]),
      parts: () => (cost === null ? [none("Loading…")] : costParts(now, cost)),
    }),
  );
}

function costParts(now, cost) {
  const [today, yesterday] = cost.days;
  const perDay = priceOf(now, cost);
  const facts = [
    ["At the current rate", perDay === null ? "–" : `${units.dollars(perDay)} per day, ${units.dollars(perDay * 30)} per 30 days`],
    ["Today (UTC)", dayText(today)],
    ["Yesterday", dayText(yesterday)],
    ["Per message, today", units.dollars(today.usd_per_message)],
    ["Prices", `${cost.region}, ${cost.prices_as_of}${cost.billing === "on_demand" ? "" : "; provisioned capacity: see `chatserver cost`"}`],
  ];
  const list = today.features.length > 0 ? today : yesterday;
  return [
    h("dl", { class: "facts" }, ...facts.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, ...withCode(text))])),
    list.features.length === 0
      ? none("No usage yet. Processes report every 10 seconds.")
      : scrolling(
          "Units by feature",
          createTable(
            ["Feature", "Write units", "Read units", "Cost (USD)"],
            list.features.map((each) => [each.feature, units.count(each.write_units), units.count(each.read_units), units.dollars(each.usd)]),
            `By feature, ${list.day}`,
          ),
        ),
  ];
}

const dayText = (day) =>
  day.usd === null ? "billed by provisioned capacity" : `${units.dollars(day.usd)}, ${units.counted(day.messages, "message")}`;

/** Cost per day at the rate of the last minute; null if billing is not by units. */
function priceOf(now, cost) {
  if (cost.write_unit_usd === null) return null;
  return now.reduce(
    (sum, each) =>
      sum + (each.write_per_s * cost.write_unit_usd + each.read_per_s * cost.read_unit_usd) * DAY_S,
    0,
  );
}
