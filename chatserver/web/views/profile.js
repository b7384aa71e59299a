// Profile section of the account dialog: name and bio.

import { getProfile, putProfile } from "../account.js";
import { h } from "./dom.js";

/** `attempt(action)` runs an action and shows its failure; `showStatus(text)` shows success. */
export function createProfile({ attempt, showStatus, token }) {
  const name = h("input", { class: "field-input", id: "profile-name", type: "text", maxlength: 80 });
  const about = h("textarea", { class: "field-input", id: "profile-about", rows: 2, maxlength: 500 });
  const element = h(
    "form",
    { class: "account-password", novalidate: true, on: { submit: onSave } },
    h("h3", {}, "Profile"),
    h("div", { class: "field" }, h("label", { for: "profile-name" }, "Name"), name),
    h("div", { class: "field" }, h("label", { for: "profile-about" }, "About you"), about),
    h("p", { class: "hint" }, "Visible to people you share a chat with. Both fields are optional."),
    h("div", { class: "dialog-foot" }, h("button", { type: "submit", class: "button" }, "Save profile")),
  );

  /** Load the form. It is disabled meanwhile, as input would be overwritten. */
  async function show() {
    name.disabled = about.disabled = true;
    fillIn(await getProfile(await token()));
    name.disabled = about.disabled = false;
  }

  function fillIn(profile) {
    name.value = profile.name ?? "";
    about.value = profile.about ?? "";
  }

  function onSave(event) {
    event.preventDefault();
    attempt(async () => {
      fillIn(await putProfile(await token(), { name: name.value, about: about.value }));
      showStatus("Profile saved.");
    });
  }

  return { element, show };
}
