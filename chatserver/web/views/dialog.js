// A modal dialog: the browser keeps the focus inside, Escape closes it, and the focus goes back.

import { h, iconButton } from "./dom.js";

let ids = 0;

/** Return `{element, body, open, close}`; `onClose` runs however it was closed. */
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
