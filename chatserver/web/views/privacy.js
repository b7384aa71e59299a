// Privacy section of the account dialog: data export and account deletion.

import { eraseAccount, findExport, startExport } from "../privacy.js";
import { fullTime } from "../format.js";
import { SessionFailed } from "../session.js";
import { createDialog } from "./dialog.js";
import { fill, h, setText } from "./dom.js";

const POLL_MS = 1_000;

/**
 * `attempt(action)` runs an action and shows its failure; `token()` returns an access token;
 * `onErased()` is called after the account was deleted.
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
    { type: "button", class: "button button-danger", on: { click: () => deletion.open() } },
    "Delete my account",
  );
  const deletion = createDeletionDialog({ token, onErased });
  const element = h(
    "section",
    { class: "account-data", aria: { labelledby: "data-title" } },
    h("h3", { id: "data-title" }, "Your data"),
    h("p", { class: "hint" }, "Download your profile, chats, messages and files as a ZIP file."),
    state,
    h("div", { class: "dialog-foot" }, ask, erase),
    deletion.element,
  );
  let timer = null;

  function onExport() {
    attempt(async () => draw(await startExport(await token())));
  }

  /** Show the progress of the newest export, and poll while the dialog is open. */
  async function show() {
    stop();
    draw(await findExport(await token()));
  }

  function draw(found) {
    stop();
    fill(state, ...lines(found));
    if (found !== null && ["waiting", "running"].includes(found.state)) {
      timer = setTimeout(() => show().catch(stopPolling), POLL_MS);
    }
  }

  /** Stop polling; it starts again when the dialog is opened. */
  function stopPolling(problem) {
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
        h("p", {}, "Preparing your export. You can close this window and come back later."),
      ];
    case "ready":
      return [
        h(
          "p",
          {},
          h("a", { class: "export-link", href: found.url, rel: "noopener" }, "Download your export"),
        ),
        h("p", { class: "hint" }, `Available until ${fullTime(found.expires)}.`),
      ];
    case "failed":
      return [h("p", { class: "form-error" }, `Export failed: ${found.why}.`)];
    default:
      return [];
  }
}

/** Confirmation dialog of account deletion. */
function createDeletionDialog({ token, onErased }) {
  const dialog = createDialog({ title: "Delete your account?", class: "dialog-deletion" });
  const error = h("p", { class: "form-error", role: "alert", hidden: true });
  const password = h("input", {
    class: "field-input",
    id: "deletion-password",
    type: "password",
    autocomplete: "current-password",
    maxlength: 512,
    required: true,
  });
  const sure = h(
    "button",
    { type: "submit", class: "button button-danger" },
    "Delete my account permanently",
  );
  const keep = h(
    "button",
    { type: "button", class: "button", on: { click: () => dialog.close() } },
    "Keep my account",
  );
  const form = h(
    "form",
    { novalidate: true, on: { submit: onSubmit } },
    h("p", {}, "This can't be undone. The following will be permanently deleted for everyone:"),
    h(
      "ul",
      { class: "deletion-list" },
      h("li", {}, "your profile, devices and settings"),
      h("li", {}, "the text of every message you sent, in all chats"),
      h("li", {}, "every file you sent"),
    ),
    h("p", {}, "You will leave all groups. Your username can't be used again."),
    h(
      "div",
      { class: "field" },
      h("label", { for: "deletion-password" }, "Your password"),
      password,
    ),
    error,
    h("div", { class: "dialog-foot" }, keep, sure),
  );
  dialog.body.append(form);

  async function onSubmit(event) {
    event.preventDefault();
    error.hidden = true;
    if (password.value === "") return showError("Enter your password.");
    sure.disabled = true;
    try {
      await eraseAccount(await token(), password.value);
    } catch (problem) {
      if (!(problem instanceof SessionFailed)) throw problem;
      showError(problem.message);
      return;
    } finally {
      sure.disabled = false;
    }
    dialog.close();
    onErased();
  }

  function showError(text) {
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
