// What those who run a group look after: slow mode, how long messages stay, and reports of them.

import { spanText } from "../rows.js";
import { fill, h } from "./dom.js";
import { button, createForm } from "./moderation.js";

const SLOW = [
  [0, "Off"],
  [5, "One message in 5 seconds"],
  [30, "One message in 30 seconds"],
  [60, "One message a minute"],
  [600, "One message in 10 minutes"],
];
const QUOTED_CHARS = 300;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const KEPT = [
  [0, "For ever"],
  ...[86_400, 604_800, 2_592_000, 7_776_000, 31_536_000].map((s) => [s, capital(spanText(s))]),
];

/** Return `{element, open(chat)}`. */
export function createGroupCare(moderation) {
  const form = createForm("Look after the group");

  function open(chat) {
    form.say("");
    fill(form.content, h("p", { class: "hint" }, "One moment."));
    form.open();
    return form.attempt(() => draw(chat));
  }

  async function draw(chat) {
    const [info, reports] = await Promise.all([
      moderation.describe(chat),
      moderation.listReports(chat),
    ]);
    fill(
      form.content,
      h("h3", {}, "Slow mode"),
      choice("slow-mode", "How often a member may write", SLOW, info.slow_s ?? 0, {
        describe: (seconds) => `One message in ${seconds} seconds`,
        save: (seconds) => moderation.slowDown(chat, seconds),
        done: (seconds) => (seconds === 0 ? "Slow mode is off." : "Slow mode is on."),
      }),
      h("h3", {}, "Disappearing messages"),
      choice("kept-for", "How long new messages stay", KEPT, info.retention_s ?? 0, {
        describe: (seconds) => capital(spanText(seconds)),
        save: (seconds) => moderation.keepFor(chat, seconds),
        done: (seconds) =>
          seconds === 0
            ? "New messages stay."
            : `New messages disappear after ${spanText(seconds)}.`,
      }),
      h("h3", {}, "Reports"),
      reports.length === 0
        ? h("p", { class: "hint" }, "Nothing was reported.")
        : h("ul", { class: "moderation-list" }, ...reports.map((one) => line(chat, one))),
    );
  }

  /** A setting of seconds, of which there are some to choose from; others are `describe`d. */
  function choice(id, label, known, now, { describe, save, done }) {
    const all = known.some(([seconds]) => seconds === now) ? known : [...known, [now, describe(now)]];
    const select = h(
      "select",
      { class: "field-input", id },
      ...all.map(([seconds, text]) =>
        h("option", { value: seconds, selected: seconds === now }, text),
      ),
    );
    const saving = button("Save", () =>
      form.attempt(async () => {
        await save(Number(select.value));
        form.say(done(Number(select.value)));
      }),
    );
    saving.setAttribute("aria-label", `Save: ${label.toLowerCase()}`);
    return h(
      "div",
      { class: "field" },
      h("label", { for: id }, label),
      select,
      h("div", { class: "dialog-foot" }, saving),
    );
  }

  function line(chat, { seq, reporter, reason, message }) {
    const done = button("Done", () =>
      form.attempt(async () => {
        await moderation.resolve(chat, seq, reporter);
        await draw(chat);
        form.say("The report is closed.");
      }),
    );
    done.setAttribute("aria-label", `Close the report by ${reporter} of message ${seq}`);
    const said = reason === "" ? "without a word" : reason;
    return h(
      "li",
      {},
      h(
        "div",
        { class: "moderation-said" },
        h("p", {}, h("bdi", {}, reporter), ` on message ${seq}: `, h("bdi", {}, said)),
        quote(message),
      ),
      done,
    );
  }

  return { element: form.element, open };
}

/** What was reported, as far as it is still there: who wrote it, and what. */
function quote(message) {
  if (message === null) return null;
  const { sender, body, deleted, attachments = [] } = message;
  if (deleted) return h("p", { class: "hint" }, "The message was deleted meanwhile.");
  const text = [body, ...attachments.map(({ name }) => name)].filter((part) => part).join(" · ");
  const short = text.length > QUOTED_CHARS ? `${text.slice(0, QUOTED_CHARS)}…` : text;
  return h("blockquote", {}, h("bdi", {}, sender), ": ", h("bdi", {}, short));
}
