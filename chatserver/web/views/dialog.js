// Modal dialogs. The browser traps focus, closes on Escape, and restores focus.

import { h, iconButton } from "./dom.js";

let ids = 0;

/** Return `{element, body, open, close}`; `onClose` is called however it was closed. */
export function createDialog({ title, class: extra = "", onClose = () => {} }) {
  ids += 1;
  const id = `dialog-title-${ids}`;
  const body = h("div", { class: "dialog-body" });
  const heading = h("h2", { id }, title);
  const element = h(
    "dialog",
    {
      class: `dialog ${extra}`.trim(),
      aria: { labelledby: id },
      on: { click: onBackdrop, close: onClose },
    },
    h("header", { class: "dialog-head" }, heading, iconButton("close", "Close", close)),
    body,
  );

  function onBackdrop(event) {
    if (event.target === element) close();
  }

  function close() {
    if (element.open) element.close();
  }

  function open() {
    if (!element.open) element.showModal();
  }

  return { element, body, heading, open, close };
}

/**
 * Confirmation dialog: `open(about)` opens it, and confirming calls `onYes(about, isChecked)`.
 * `option` is the label of a checkbox.
 */
export function createConfirm({ title, text, yes, onYes, option = null }) {
  const dialog = createDialog({ title, class: "dialog-confirm" });
  let about = null;
  const answer = (isYes) => {
    dialog.close();
    if (isYes) onYes(about, box.checked);
  };
  const quiet = { type: "button", class: "button button-quiet", autofocus: true };
  const danger = { type: "button", class: "button button-danger" };
  const box = h("input", { type: "checkbox" });
  dialog.body.append(
    h("p", {}, text),
    option === null ? "" : h("label", { class: "dialog-option" }, box, option),
    h(
      "div",
      { class: "dialog-foot" },
      h("button", { ...quiet, on: { click: () => answer(false) } }, "Cancel"),
      h("button", { ...danger, on: { click: () => answer(true) } }, yes),
    ),
  );
  function open(next) {
    about = next;
    box.checked = false;
    dialog.open();
  }
  return { element: dialog.element, open };
}
