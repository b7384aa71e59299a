// Login page: demo user (development server), username and password, or access token.

import { SessionFailed, demoLogin, tokenSession } from "../session.js";
import { createAccountForm } from "./account_form.js";
import { h, setText } from "./dom.js";
import { userAvatar } from "./avatar.js";

/** `onSession(session)` is called after login; `notice` is shown after an involuntary logout. */
export function createLogin({ demoUsers, hasAccounts, canRegister, notice, onSession }) {
  const error = h("p", { class: "form-error", role: "alert" });
  const token = h("input", {
    class: "field-input",
    id: "login-token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 4096,
  });
  const form = h(
    "form",
    { class: "login-form", novalidate: true, on: { submit: onToken } },
    h("label", { for: "login-token" }, "Access token"),
    h(
      "div",
      { class: "login-row" },
      token,
      h("button", { type: "submit", class: "button" }, "Log in"),
    ),
    h("p", { class: "hint" }, "Get a token from your organization's sign-in service. It is stored in this tab only."),
  );
  const hasDemo = demoUsers.length > 0;
  const account = hasAccounts ? createAccountForm({ canRegister, onSession }).element : null;
  const element = h(
    "main",
    { class: "login" },
    h(
      "div",
      { class: "login-card" },
      h("img", { class: "login-logo", src: "icon.svg", alt: "", width: 64, height: 64 }),
      h("h1", {}, "Welcome to chatserver"),
      h(
        "p",
        { class: "login-lead" },
        notice ?? (hasDemo ? "Choose a demo user to continue." : "Log in to your chats."),
      ),
      error,
      hasDemo ? h("div", { class: "demo-users" }, ...demoUsers.map(demoButton)) : null,
      hasDemo
        ? h("p", { class: "hint" }, "To try it out, continue as another user in a second window.")
        : null,
      account !== null && hasDemo ? more("Use a password", account) : account,
      hasDemo || account !== null ? more("Use a token instead", form) : form,
    ),
  );
  showError("");

  function more(label, what) {
    return h("details", { class: "login-more" }, h("summary", {}, label), what);
  }

  function demoButton(user) {
    const props = { type: "button", class: "demo-user", on: { click: () => choose(user) } };
    return h(
      "button",
      props,
      userAvatar(user, "l"),
      h("span", {}, "Continue as ", h("strong", {}, user)),
    );
  }

  async function choose(user) {
    showError("");
    setBusy(true);
    try {
      onSession(await demoLogin(user));
    } catch (problem) {
      if (!(problem instanceof SessionFailed)) throw problem;
      showError(problem.message);
      setBusy(false);
    }
  }

  function onToken(event) {
    event.preventDefault();
    const text = token.value.trim();
    if (text === "") showError("Enter an access token.");
    else onSession(tokenSession(text));
  }

  function setBusy(isBusy) {
    for (const button of element.querySelectorAll("button")) button.disabled = isBusy;
  }

  function showError(text) {
    setText(error, text);
    error.hidden = text === "";
  }

  return { element, focus: () => element.querySelector("button, input")?.focus() };
}
