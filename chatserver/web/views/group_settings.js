// Group settings dialog for owners and admins: slow mode, disappearing messages and reports.

import { durationText } from "../timeline_rows.js";
import { fill, h } from "./dom.js";
import { button, createForm } from "./form_dialog.js";

const SLOW = [
  [0, "Off"],
  [5, "One message every 5 seconds"],
  [30, "One message every 30 seconds"],
  [60, "One message per minute"],
  [600, "One message every 10 minutes"],
];
const QUOTED_CHARS = 300;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const RETENTIONS = [
  [0, "Off"],
  ...[86_400, 604_800, 2_592_000, 7_776_000, 31_536_000].map((s) => [s, capital(durationText(s))]),
];

/** Return `{element, open(chat)}`. */
export function createGroupSettings(moderation) {
  const form = createForm("Group settings");

  function open(chat) {
    form.showStatus("");
    fill(form.content, h("p", { class: "hint" }, "Loading…"));
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
      choice("slow-mode", "Sending limit", SLOW, info.slow_s ?? 0, {
        describe: (seconds) => `One message every ${seconds} seconds`,
        save: (seconds) => moderation.setSlowMode(chat, seconds),
        done: (seconds) => (seconds === 0 ? "Slow mode is off." : "Slow mode is on."),
      }),
      h("h3", {}, "Disappearing messages"),
      choice("kept-for", "New messages disappear after", RETENTIONS, info.retention_s ?? 0, {
        describe: (seconds) => capital(durationText(seconds)),
        save: (seconds) => moderation.setRetention(chat, seconds),
        done: (seconds) =>
          seconds === 0
            ? "Disappearing messages are off."
            : `New messages will disappear after ${durationText(seconds)}.`,
      }),
      h("h3", {}, "Reports"),
      reports.length === 0
        ? h("p", { class: "hint" }, "No open reports.")
        : h("ul", { class: "moderation-list" }, ...reports.map((one) => line(chat, one))),
    );
  }

  /** A select field for a duration in seconds; a value not in `known` is labeled by `describe`. */
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
        form.showStatus(done(Number(select.value)));
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
    const done = button("Resolve", () =>
      form.attempt(async () => {
        await moderation.resolve(chat, seq, reporter);
        await draw(chat);
        form.showStatus("Report resolved.");
      }),
    );
    done.setAttribute("aria-label", `Resolve report by ${reporter}`);
    const text = reason === "" ? "no reason given" : reason;
    return h(
      "li",
      {},
      h(
        "div",
        { class: "moderation-text" },
        h("p", {}, "Reported by ", h("bdi", {}, reporter), ": ", h("bdi", {}, text)),
        quote(message),
      ),
      done,
    );
  }

  return { element: form.element, open };
}

/** The reported message with its sender, if it still exists. */
function quote(message) {
  if (message === null) return null;
  const { sender, body, deleted, attachments = [] } = message;
  if (deleted) return h("p", { class: "hint" }, "The message has been deleted.");
  const text = [body, ...attachments.map(({ name }) => name)].filter((part) => part).join(" · ");
  const short = text.length > QUOTED_CHARS ? `${text.slice(0, QUOTED_CHARS)}…` : text;
  return h("blockquote", {}, h("bdi", {}, sender), ": ", h("bdi", {}, short));
}
