// Account dialog: devices, profile, password, data export and account deletion.

import { changePassword, endDevice, listDevices, logOutEverywhere } from "../account.js";
import { fullTime } from "../format.js";
import { SessionFailed } from "../session.js";
import { createDialog } from "./dialog.js";
import { fill, h, setText } from "./dom.js";
import { createPrivacy } from "./privacy.js";
import { createProfile } from "./profile.js";

const PASSWORD_RULES = "At least 8 characters. Your other devices will be logged out.";

/**
 * `token()` returns a valid access token; `onOut()` is called after logging out everywhere, and
 * `onErased()` after the account was deleted.
 */
export function createAccount({ token, onOut, onErased }) {
  const privacy = createPrivacy({ attempt, token, onErased });
  const profile = createProfile({ attempt, showStatus, token });
  const dialog = createDialog({
    title: "Account and devices",
    class: "dialog-account",
    onClose: privacy.stop,
  });
  const note = h("p", { class: "form-note", role: "status" });
  const error = h("p", { class: "form-error", role: "alert" });
  const devices = h("ul", { class: "device-list" });
  const current = passwordField("account-current", "Current password", "current-password");
  const wanted = passwordField("account-wanted", "New password", "new-password");
  const change = h("button", { type: "submit", class: "button" }, "Change password");
  const form = h(
    "form",
    { class: "account-password", novalidate: true, on: { submit: onChange } },
    h("h3", {}, "Password"),
    current.label,
    wanted.label,
    h("p", { class: "hint" }, PASSWORD_RULES),
    h("div", { class: "dialog-foot" }, change),
  );
  const everywhere = h(
    "button",
    { type: "button", class: "button button-danger", on: { click: onEverywhere } },
    "Log out everywhere",
  );
  dialog.body.append(
    error,
    note,
    h("h3", { id: "devices-title" }, "Devices"),
    devices,
    h("div", { class: "dialog-foot" }, everywhere),
    profile.element,
    form,
    privacy.element,
  );
  devices.setAttribute("aria-labelledby", "devices-title");

  function passwordField(id, text, autocomplete) {
    const input = h("input", {
      class: "field-input",
      id,
      type: "password",
      autocomplete,
      maxlength: 512,
    });
    const ask = `Enter your ${text.toLowerCase()}.`;
    return { input, ask, label: h("div", { class: "field" }, h("label", { for: id }, text), input) };
  }

  function open() {
    showStatus("");
    fill(devices, h("li", { class: "hint" }, "Loading…"));
    dialog.open();
    attempt(() => Promise.all([drawDevices(), profile.show(), privacy.show()]));
  }

  /** Run an action; a failure is shown in the dialog. */
  async function attempt(action) {
    error.hidden = true;
    setBusy(true);
    try {
      await action();
    } catch (problem) {
      if (!(problem instanceof SessionFailed)) throw problem;
      setText(error, problem.message);
      error.hidden = false;
    } finally {
      setBusy(false);
    }
  }

  function showError(text, input) {
    showStatus("");
    setText(error, text);
    error.hidden = false;
    input.focus();
  }

  function setBusy(isBusy) {
    for (const button of dialog.body.querySelectorAll("button")) button.disabled = isBusy;
  }

  function showStatus(text) {
    setText(note, text);
    note.hidden = text === "";
    error.hidden = true;
  }

  async function drawDevices() {
    const items = await listDevices(await token());
    fill(devices, ...items.map(line));
  }

  function line(item) {
    const name = item.name ?? "Unnamed device";
    const seen = item.is_current ? "This device" : `Last used ${fullTime(item.seen)}`;
    const end = h(
      "button",
      { type: "button", class: "button button-quiet", on: { click: () => onEnd(item, name) } },
      "Log out",
      h("span", { class: "sr-only" }, ` ${name}`),
    );
    const text = h("span", { class: "device-text" }, h("bdi", {}, name), h("small", {}, seen));
    return h("li", { class: "device" }, text, item.is_current ? null : end);
  }

  function onEnd(item, name) {
    attempt(async () => {
      await endDevice(await token(), item.device);
      await drawDevices();
      showStatus(`Logged out ${name}.`);
    });
  }

  function onChange(event) {
    event.preventDefault();
    for (const { input, ask } of [current, wanted]) {
      if (input.value === "") return showError(ask, input);
    }
    attempt(async () => {
      await changePassword(await token(), current.input.value, wanted.input.value);
      form.reset();
      await drawDevices();
      showStatus("Password changed. Your other devices are logged out.");
    });
  }

  function onEverywhere() {
    attempt(async () => {
      await logOutEverywhere(await token());
      dialog.close();
      onOut();
    });
  }

  return { element: dialog.element, open };
}
