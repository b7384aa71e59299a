// What those who run a group look after: slow mode, and the reports of its messages.

import { fill, h } from "./dom.js";
import { button, createForm } from "./moderation.js";

const SLOW = [
  [0, "Off"],
  [5, "One message in 5 seconds"],
  [30, "One message in 30 seconds"],
  [60, "One message a minute"],
  [600, "One message in 10 minutes"],
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
      slowMode(chat, info.slow_s ?? 0),
      h("h3", {}, "Reports"),
      reports.length === 0
        ? h("p", { class: "hint" }, "Nothing was reported.")
        : h("ul", { class: "moderation-list" }, ...reports.map((one) => line(chat, one))),
    );
  }

  function slowMode(chat, now) {
    const known = SLOW.some(([seconds]) => seconds === now);
    const all = known ? SLOW : [...SLOW, [now, `One message in ${now} seconds`]];
    const select = h(
      "select",
      { class: "field-input", id: "slow-mode" },
      ...all.map(([seconds, text]) =>
        h("option", { value: seconds, selected: seconds === now }, text),
      ),
    );
    const save = button("Save", () =>
      form.attempt(async () => {
        await moderation.slowDown(chat, Number(select.value));
        form.say(select.value === "0" ? "Slow mode is off." : "Slow mode is on.");
      }),
    );
    return h(
      "div",
      { class: "field" },
      h("label", { for: "slow-mode" }, "How often a member may write"),
      select,
      h("div", { class: "dialog-foot" }, save),
    );
  }

  function line(chat, { seq, reporter, reason }) {
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
      h("p", { class: "moderation-said" }, h("bdi", {}, reporter), ` on message ${seq}: `, h("bdi", {}, said)),
      done,
    );
  }

  return { element: form.element, open };
}
