// The user's account: where he is logged in, another password, and out of everywhere.

import { changePassword, endDevice, listDevices, logOutEverywhere } from "../account.js";
import { fullTime } from "../format.js";
import { SessionFailed } from "../session.js";
import { createDialog } from "./dialog.js";
import { fill, h, setText } from "./dom.js";
import { createPrivacy } from "./privacy.js";
import { createProfile } from "./profile.js";

const PASSWORD_RULES = "8 characters or more. All other devices are logged out.";

/**
 * `token()` gives an access token that holds; `onOut()` runs once everything is logged out, and
 * `onErased()` once the account is gone.
 */
export function createAccount({ token, onOut, onErased }) {
  const privacy = createPrivacy({ attempt, token, onErased });
  const profile = createProfile({ attempt, say, token });
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
    const ask = `Type the ${text.toLowerCase()}.`;
    return { input, ask, label: h("div", { class: "field" }, h("label", { for: id }, text), input) };
  }

  function open() {
    say("");
    fill(devices, h("li", { class: "hint" }, "One moment."));
    dialog.open();
    attempt(() => Promise.all([drawDevices(), profile.show(), privacy.show()]));
  }

  /** Do something that may fail; what went wrong is said in the dialog. */
  async function attempt(deed) {
    error.hidden = true;
    setBusy(true);
    try {
      await deed();
    } catch (problem) {
      if (!(problem instanceof SessionFailed)) throw problem;
      setText(error, problem.message);
      error.hidden = false;
    } finally {
      setBusy(false);
    }
  }

  function miss(text, input) {
    say("");
    setText(error, text);
    error.hidden = false;
    input.focus();
  }

  function setBusy(isBusy) {
    for (const button of dialog.body.querySelectorAll("button")) button.disabled = isBusy;
  }

  function say(text) {
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
    const seen = item.is_current ? "this device" : `last used ${fullTime(item.seen)}`;
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
      say(`${name} is logged out.`);
    });
  }

  function onChange(event) {
    event.preventDefault();
    for (const { input, ask } of [current, wanted]) {
      if (input.value === "") return miss(ask, input);
    }
    attempt(async () => {
      await changePassword(await token(), current.input.value, wanted.input.value);
      form.reset();
      await drawDevices();
      say("The password is changed. All other devices are logged out.");
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
