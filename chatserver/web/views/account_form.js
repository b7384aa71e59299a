// Form for login and registration with username and password.

import { logIn, register } from "../account.js";
import { SessionFailed } from "../session.js";
import { h, setAria, setText } from "./dom.js";

const USES = {
  login: { label: "Log in", other: "New here? Create an account", password: "current-password" },
  register: {
    label: "Create account",
    other: "Already have an account? Log in",
    password: "new-password",
  },
};

/** `onSession(session)` is called with the new session. */
export function createAccountForm({ canRegister, onSession }) {
  let use = "login";
  const error = h("p", { class: "form-error", id: "account-error", role: "alert" });
  const user = h("input", {
    class: "field-input",
    id: "account-user",
    type: "text",
    autocomplete: "username",
    autocapitalize: "none",
    spellcheck: "false",
    maxlength: 64,
    required: true,
  });
  const password = h("input", {
    class: "field-input",
    id: "account-password",
    type: "password",
    maxlength: 512,
    required: true,
    aria: { describedby: "account-hint" },
  });
  const hint = h("p", { class: "hint", id: "account-hint" });
  const submit = h("button", { type: "submit", class: "button" });
  const other = h("button", { type: "button", class: "link-button", on: { click: onOther } });
  const element = h(
    "form",
    { class: "login-form account-form", novalidate: true, on: { submit: onSubmit } },
    error,
    h("label", { for: "account-user" }, "Username"),
    user,
    h("label", { for: "account-password" }, "Password"),
    password,
    hint,
    submit,
    canRegister ? other : null,
  );
  draw();
  showError("");

  function draw() {
    setText(submit, USES[use].label);
    setText(other, USES[use].other);
    password.setAttribute("autocomplete", USES[use].password);
    const rules =
      "Usernames must be 3 to 32 characters: a–z, 0–9, “_” and “-”. Passwords must be at least 8 characters.";
    setText(hint, use === "register" ? rules : "");
    hint.hidden = use !== "register";
  }

  function onOther() {
    use = use === "login" ? "register" : "login";
    showError("");
    draw();
    user.focus();
  }

  async function onSubmit(event) {
    event.preventDefault();
    const name = user.value.trim();
    if (name === "") return showError("Enter your username.", user);
    if (password.value === "") return showError("Enter your password.", password);
    showError("");
    setBusy(true);
    try {
      const enter = use === "login" ? logIn : register;
      onSession(await enter(name, password.value));
    } catch (problem) {
      if (!(problem instanceof SessionFailed)) throw problem;
      showError(problem.message, password);
    } finally {
      setBusy(false);
    }
  }

  function setBusy(isBusy) {
    submit.disabled = isBusy;
    setAria(element, { busy: isBusy });
  }

  function showError(text, field = null) {
    setText(error, text);
    error.hidden = text === "";
    for (const each of [user, password]) {
      setAria(each, { invalid: each === field && text !== "" ? true : null });
    }
    if (field !== null) field.focus();
  }

  return { element, focus: () => user.focus() };
}
