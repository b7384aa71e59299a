// The tables of the admin page: processes, busiest chats, slow clients, the audit, cost.

import * as units from "../quantities.js";
import { createBar, createTable } from "./chart.js";
import { fill, h } from "./dom.js";

const DAY_S = 86_400;
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });

/** A card with a heading; `draw(...)` returns what is in it. What did not change is left alone. */
function createPart(title, about, draw, extra = "") {
  const body = h("div", { class: "part-body" });
  const element = h(
    "section",
    { class: `card part ${extra}`.trim(), aria: { label: title } },
    h("h3", { class: "part-title" }, title),
    h("p", { class: "chart-about" }, about),
    body,
  );
  let shown = null;
  function update(...facts) {
    const { key, parts } = draw(...facts);
    if (key === shown) return;
    shown = key;
    // Where one reads on in a table that is drawn anew, one stays.
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
  1000: "left",
  1001: "left",
  1006: "lost",
  3000: "shutdown",
  3001: "slow",
  3002: "overloaded",
  3003: "no pong",
  3004: "replaced",
  3500: "unauthenticated",
};

const none = (text) => h("p", { class: "part-none" }, text);
const name = (text) => h("code", { class: "part-name" }, text);

export function createProcesses() {
  return createPart(
    "Processes",
    "Each says every other second how it is; who says nothing for a minute is taken off.",
    ({ processes, now_ms }) => ({
      key: JSON.stringify([processes, now_ms]),
      parts: () => [
        processes.length === 0
          ? none("None. Start chatserver gateway and chatserver worker all.")
          : scrolling(
              "Processes",
              createTable(
                ["Process", "State", "Up", "CPU", "Sessions", "Sends", "Loop"],
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
  const silent = `silent for ${units.seconds(Math.round((now - each.said_ms) / 1000))}`;
  return [
    h("span", {}, h("strong", {}, each.does === "" ? each.kind : `${each.kind} ${each.does}`), h("small", {}, `${each.host} · ${each.pid}`)),
    h("span", { class: each.is_stale ? "state is-bad" : "state is-ok" }, each.is_stale ? silent : "well"),
    units.seconds(Math.round((now - each.started_ms) / 1000)),
    units.share(each.cpu_share),
    isGateway ? units.count(each.connections) : "–",
    isGateway ? units.perSecond(each.sends_per_s) : "–",
    units.millis(each.loop_p99_ms),
  ];
}

export function createBusyChats() {
  return createPart(
    "Busiest chats",
    "Messages stored in the last minute, by chat. A very busy one is spread over partitions by itself.",
    ({ top_chats: chats }) => ({
      key: JSON.stringify(chats),
      parts: () => [
        chats.length === 0
          ? none("Nothing was stored in the last minute.")
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
  return createPart(
    "Slow and refused clients",
    "Who does not take what is sent is closed with 3001; its device comes back and is told what it missed.",
    ({ slow, queues, refused, limited, closes, now_ms }) => ({
      key: JSON.stringify([slow, queues, refused, limited, closes, slow.length > 0 && Math.floor(now_ms / 10_000)]),
      parts: () => [
        h("h4", {}, "Longest queues now"),
        queues.length === 0
          ? none("Every client takes what it is sent.")
          : scrolling("Longest queues", createTable(["User", "Device", "Waiting"], queues.map((each) => [name(each.user), each.device, units.bytes(each.waiting_bytes)]), "Longest queues now")),
        h("h4", {}, "Closed as slow"),
        slow.length === 0
          ? none("None of late.")
          : scrolling("Closed as slow", createTable(["User", "Device", "When", "Waiting"], slow.map((each) => [name(each.user), each.device, units.ago(each.at_ms, now_ms), units.bytes(each.waiting_bytes)]), "Closed as slow")),
        ...counts("Sends refused, by why", refused),
        ...counts("Limits reached", limited),
        ...counts("Connections closed, by code", closes, CLOSES),
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
  return createPart(
    "Audit",
    "Compares Redis, DynamoDB and S3, chat by chat (chatserver worker audit).",
    (_, { audit }, now) => ({
      key: JSON.stringify([audit, Math.floor(now / 30_000)]),
      parts: () => (audit === null ? [none("One moment.")] : auditParts(audit, now)),
    }),
  );
}

function auditParts(audit, now) {
  if (audit.newest_ms === null) {
    return [none("No round has ended yet. Start one: chatserver worker audit. Nobody compares the tiers until then.")];
  }
  const facts = [
    ["Last round", units.ago(audit.newest_ms, now)],
    ["Partitions", `${audit.audited} of ${audit.partitions}, the oldest ${units.ago(audit.oldest_ms, now)}`],
    ["Looked at", `${units.counted(audit.chats, "chat")}, ${units.counted(audit.entries, "entry", "entries")}`],
    ["Could not be looked at", units.counted(audit.failed, "chat")],
    ["Findings", units.count(audit.findings)],
  ];
  return [
    h("dl", { class: "facts" }, ...facts.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)])),
    audit.latest.length === 0
      ? none("Nothing wrong was ever found.")
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
  return createPart(
    "Cost of DynamoDB",
    "Units as DynamoDB counts them, at on-demand prices; chatserver cost tells all of it.",
    ({ units: now }, { cost }) => ({
      key: JSON.stringify([now, cost]),
      parts: () => (cost === null ? [none("One moment.")] : costParts(now, cost)),
    }),
  );
}

function costParts(now, cost) {
  const [today, yesterday] = cost.days;
  const perDay = priceOf(now, cost);
  const facts = [
    ["At this minute’s rate", perDay === null ? "–" : `${units.dollars(perDay)} a day, ${units.dollars(perDay * 30)} in 30 days`],
    ["Today (UTC)", dayText(today)],
    ["Yesterday", dayText(yesterday)],
    ["A message, today", units.dollars(today.usd_per_message)],
    ["Prices", `${cost.region}, ${cost.prices_as_of}${cost.billing === "on_demand" ? "" : "; capacity is provisioned: see chatserver cost"}`],
  ];
  const list = today.features.length > 0 ? today : yesterday;
  return [
    h("dl", { class: "facts" }, ...facts.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)])),
    list.features.length === 0
      ? none("Nothing was spent yet. Processes tell every ten seconds.")
      : scrolling(
          "Units by feature",
          createTable(
            ["Feature", "Write units", "Read units", "Dollars"],
            list.features.map((each) => [each.feature, units.count(each.write_units), units.count(each.read_units), units.dollars(each.usd)]),
            `By feature, ${list.day}`,
          ),
        ),
  ];
}

const dayText = (day) =>
  day.usd === null ? "capacity is paid, not units" : `${units.dollars(day.usd)}, ${units.counted(day.messages, "message")}`;

/** What a day costs at the rate of the last minute; null where units are not what is paid. */
function priceOf(now, cost) {
  if (cost.write_unit_usd === null) return null;
  return now.reduce(
    (sum, each) =>
      sum + (each.write_per_s * cost.write_unit_usd + each.read_per_s * cost.read_unit_usd) * DAY_S,
    0,
  );
}
