// The part of the account's dialog about what one is called, and says of oneself.

import { getProfile, putProfile } from "../account.js";
import { h } from "./dom.js";

/** `attempt(deed)` does what may fail, `say(text)` tells that it is done; `token()` lets one in. */
export function createProfile({ attempt, say, token }) {
  const name = h("input", { class: "field-input", id: "profile-name", type: "text", maxlength: 80 });
  const about = h("textarea", { class: "field-input", id: "profile-about", rows: 2, maxlength: 500 });
  const element = h(
    "form",
    { class: "account-password", novalidate: true, on: { submit: onSave } },
    h("h3", {}, "Profile"),
    h("div", { class: "field" }, h("label", { for: "profile-name" }, "Name"), name),
    h("div", { class: "field" }, h("label", { for: "profile-about" }, "About you"), about),
    h("p", { class: "hint" }, "Shown to people you share a chat with. Both may be left out."),
    h("div", { class: "dialog-foot" }, h("button", { type: "submit", class: "button" }, "Save profile")),
  );

  /** Fill the form in. Until then nobody types into it: that would be overwritten. */
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
      say("Your profile is saved.");
    });
  }

  return { element, show };
}
