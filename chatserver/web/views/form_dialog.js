// Dialog for moderation requests: runs an action, then shows its result or error.

import { ModerationFailed } from "../moderation.js";
import { createDialog } from "./dialog.js";
import { h, setText } from "./dom.js";

/** A dialog with a status line; `attempt` runs an action and disables all buttons meanwhile. */
export function createForm(title) {
  const dialog = createDialog({ title, class: "dialog-moderation" });
  const error = h("p", { class: "form-error", role: "alert", hidden: true });
  const note = h("p", { class: "form-note", role: "status", hidden: true });
  const content = h("div", { class: "moderation" });
  dialog.body.append(error, note, content);

  async function attempt(action) {
    setBusy(true);
    error.hidden = true;
    try {
      await action();
    } catch (problem) {
      if (!(problem instanceof ModerationFailed)) throw problem;
      setText(error, problem.message);
      error.hidden = false;
    } finally {
      setBusy(false);
    }
  }

  function setBusy(isBusy) {
    for (const button of content.querySelectorAll("button")) button.disabled = isBusy;
  }

  function showStatus(text) {
    setText(note, text);
    note.hidden = text === "";
    error.hidden = true;
  }

  return { ...dialog, content, attempt, showStatus };
}

export function button(label, onClick, kind = "button-quiet") {
  const props = { type: "button", class: `button ${kind}`, on: { click: onClick } };
  return h("button", props, label);
}
