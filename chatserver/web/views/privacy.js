// The part of the account's dialog about one's data: a copy of it, and the end of the account.

import { eraseAccount, findExport, startExport } from "../privacy.js";
import { fullTime } from "../format.js";
import { SessionFailed } from "../session.js";
import { createDialog } from "./dialog.js";
import { fill, h, setText } from "./dom.js";

const POLL_MS = 1_000;

/**
 * `attempt(deed)` does what may fail and says what went wrong; `token()` gives an access token;
 * `onErased()` runs once the account is gone.
 */
export function createPrivacy({ attempt, token, onErased }) {
  const state = h("div", { class: "export-state", role: "status" });
  const ask = h(
    "button",
    { type: "button", class: "button", on: { click: onExport } },
    "Export my data",
  );
  const erase = h(
    "button",
    { type: "button", class: "button button-danger", on: { click: () => farewell.open() } },
    "Delete my account",
  );
  const farewell = createFarewell({ token, onErased });
  const element = h(
    "section",
    { class: "account-data", aria: { labelledby: "data-title" } },
    h("h3", { id: "data-title" }, "Your data"),
    h("p", { class: "hint" }, "A copy of your profile, chats, messages and files, as a ZIP."),
    state,
    h("div", { class: "dialog-foot" }, ask, erase),
    farewell.element,
  );
  let timer = null;

  function onExport() {
    attempt(async () => draw(await startExport(await token())));
  }

  /** Show how far the newest export is, and go on looking while the dialog is open. */
  async function show() {
    stop();
    draw(await findExport(await token()));
  }

  function draw(found) {
    stop();
    fill(state, ...lines(found));
    if (found !== null && ["waiting", "running"].includes(found.state)) {
      timer = setTimeout(() => show().catch(giveUp), POLL_MS);
    }
  }

  /** Looking again is done when the dialog is opened again. */
  function giveUp(problem) {
    if (!(problem instanceof SessionFailed)) throw problem;
  }

  function stop() {
    clearTimeout(timer);
    timer = null;
  }

  return { element, show, stop };
}

function lines(found) {
  switch (found?.state) {
    case "waiting":
    case "running":
      return [
        h("progress", { max: 100, value: found.progress, aria: { label: "Export" } }),
        h("p", {}, "Your export is being made. You may close this and come back."),
      ];
    case "ready":
      return [
        h(
          "p",
          {},
          h("a", { class: "export-link", href: found.url, rel: "noopener" }, "Download your export"),
        ),
        h("p", { class: "hint" }, `It is kept until ${fullTime(found.expires)}.`),
      ];
    case "failed":
      return [h("p", { class: "form-error" }, `Your export could not be made: ${found.why}.`)];
    default:
      return [];
  }
}

/** The dialog that asks whether one means it. */
function createFarewell({ token, onErased }) {
  const dialog = createDialog({ title: "Delete your account?", class: "dialog-farewell" });
  const error = h("p", { class: "form-error", role: "alert", hidden: true });
  const password = h("input", {
    class: "field-input",
    id: "farewell-password",
    type: "password",
    autocomplete: "current-password",
    maxlength: 512,
    required: true,
  });
  const sure = h(
    "button",
    { type: "submit", class: "button button-danger" },
    "Delete my account for good",
  );
  const keep = h(
    "button",
    { type: "button", class: "button", on: { click: () => dialog.close() } },
    "Keep my account",
  );
  const form = h(
    "form",
    { novalidate: true, on: { submit: onSubmit } },
    h("p", {}, "This cannot be undone. These go for good, on the server and for everybody:"),
    h(
      "ul",
      { class: "farewell-list" },
      h("li", {}, "your profile, devices and settings"),
      h("li", {}, "the text of every message that you sent, in all chats"),
      h("li", {}, "every file that you sent"),
    ),
    h("p", {}, "You leave all groups. Nobody can use your name again, and neither can you."),
    h(
      "div",
      { class: "field" },
      h("label", { for: "farewell-password" }, "Your password"),
      password,
    ),
    error,
    h("div", { class: "dialog-foot" }, keep, sure),
  );
  dialog.body.append(form);

  async function onSubmit(event) {
    event.preventDefault();
    error.hidden = true;
    if (password.value === "") return say("Type your password.");
    sure.disabled = true;
    try {
      await eraseAccount(await token(), password.value);
    } catch (problem) {
      if (!(problem instanceof SessionFailed)) throw problem;
      say(problem.message);
      return;
    } finally {
      sure.disabled = false;
    }
    dialog.close();
    onErased();
  }

  function say(text) {
    setText(error, text);
    error.hidden = false;
    password.focus();
  }

  function open() {
    form.reset();
    error.hidden = true;
    dialog.open();
    keep.focus();
  }

  return { element: dialog.element, open };
}
