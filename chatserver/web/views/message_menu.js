// The message menu, shared by all messages and opened at the message's button, and the confirmation
// before a message is deleted for everyone.

import { createConfirm } from "./dialog.js";
import { fill, h, icon } from "./dom.js";

export const REACTION_NAMES = new Map([
  ["👍", "thumbs up"],
  ["❤️", "heart"],
  ["😂", "laughing"],
  ["😮", "surprised"],
  ["😢", "sad"],
  ["🙏", "thank you"],
]);
const GAP = 8; // px from the edge of the window

/**
 * Return `{elements, open}`. `actions`: reply, copy, save, edit, report, remove(row, isForAll), react(row, to),
 * pin(row), pinState(row): "pinned" or "unpinned", null if the user may not pin.
 */
export function createMessageMenu(actions) {
  const confirm = createConfirm({
    title: "Delete for everyone?",
    text: "This deletes the message for everyone and can't be undone.",
    yes: "Delete",
    onYes: (row) => actions.remove(row, true),
  });
  const element = h("div", {
    class: "menu message-menu",
    popover: "auto",
    role: "menu",
    aria: { label: "Message actions" },
    on: { keydown: onKey, toggle: onToggle },
  });
  let button = null;

  function open(row, anchor) {
    button = anchor;
    const choices = [...REACTION_NAMES].map(([emoji, name]) => choice(row, emoji, name));
    fill(
      element,
      h("div", { class: "choices", role: "group", aria: { label: "React" } }, ...choices),
      item("reply", "Reply", () => actions.reply(row)),
      item("copy", "Copy text", () => actions.copy(row)),
      pinItem(row),
      item("bookmark", "Save", () => actions.save(row)),
      row.own ? item("edit", "Edit", () => actions.edit(row)) : null,
      item("hide", "Delete for me", () => actions.remove(row, false)),
      row.own ? null : item("alert", "Report", () => actions.report(row)),
      row.own ? item("trash", "Delete for everyone", () => confirm.open(row), "is-danger") : null,
    );
    element.showPopover();
    place(anchor);
    element.querySelector("button").focus();
  }

  function pinItem(row) {
    const state = actions.pinState(row);
    if (state === null) return null;
    return item("pin", state === "pinned" ? "Unpin" : "Pin", () => actions.pin(row));
  }

  function place(anchor) {
    const { left, top, bottom } = anchor.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = element;
    const below = bottom + 4;
    const isBelow = below + height + GAP <= innerHeight;
    const y = isBelow ? below : Math.max(GAP, top - height - 4);
    const x = Math.min(Math.max(GAP, left), innerWidth - width - GAP);
    element.style.left = `${x}px`;
    element.style.top = `${y}px`;
  }

  function choice(row, emoji, name) {
    const own = row.reactions === "" ? [] : JSON.parse(row.reactions).filter(([, isOwn]) => isOwn);
    const isChosen = own.some(([each]) => each === emoji);
    const props = {
      class: "choice",
      role: "menuitemcheckbox",
      title: name,
      aria: { label: name, checked: isChosen },
    };
    return part(props, () => actions.react(row, isChosen ? "" : emoji), emoji);
  }

  function item(name, label, action, extra = "") {
    return part({ class: `menu-item ${extra}`.trim(), role: "menuitem" }, action, icon(name), label);
  }

  function part(props, action, ...children) {
    const on = { click: () => (element.hidePopover(), action()) };
    return h("button", { type: "button", tabindex: -1, ...props, on }, ...children);
  }

  function onToggle(event) {
    if (event.newState === "open") button?.setAttribute("aria-expanded", "true");
    else button?.removeAttribute("aria-expanded");
  }

  /** Arrow keys move, Tab closes. The browser closes on Escape and restores focus. */
  function onKey(event) {
    event.stopPropagation(); // arrow keys also move through the messages
    if (event.key === "Tab") element.hidePopover();
    const parts = [...element.querySelectorAll("button")];
    const at = parts.indexOf(document.activeElement);
    const isChoice = parts[at]?.classList.contains("choice");
    const down = isChoice ? REACTION_NAMES.size : at + 1;
    const up = at === REACTION_NAMES.size ? 0 : at - 1;
    const steps = { ArrowDown: down, ArrowUp: isChoice ? parts.length - 1 : up };
    const sides = isChoice ? { ArrowRight: at + 1, ArrowLeft: at - 1 } : {};
    const to = { ...steps, ...sides, Home: 0, End: parts.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    parts[(to + parts.length) % parts.length].focus();
  }

  return { elements: [element, confirm.element], open };
}
