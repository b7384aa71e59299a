// What can be done with a message: one menu for all of them, opened beside the message's button,
// and the question that is asked before a message is deleted for everybody.

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

/** Return `{elements, open}`. `deeds`: reply, copy, edit, report, remove(row, isForAll), react(row, to). */
export function createMessageMenu(deeds) {
  const confirm = createConfirm({
    title: "Delete for everyone?",
    text: "The text is gone for all members, and cannot be brought back.",
    yes: "Delete",
    onYes: (row) => deeds.remove(row, true),
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
      item("reply", "Reply", () => deeds.reply(row)),
      item("copy", "Copy text", () => deeds.copy(row)),
      row.own ? item("edit", "Edit", () => deeds.edit(row)) : null,
      item("hide", "Delete for me", () => deeds.remove(row, false)),
      row.own ? null : item("alert", "Report", () => deeds.report(row)),
      row.own ? item("trash", "Delete for everyone", () => confirm.ask(row), "is-danger") : null,
    );
    element.showPopover();
    place(anchor);
    element.querySelector("button").focus();
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
    return part(props, () => deeds.react(row, isChosen ? "" : emoji), emoji);
  }

  function item(name, label, deed, extra = "") {
    return part({ class: `menu-item ${extra}`.trim(), role: "menuitem" }, deed, icon(name), label);
  }

  function part(props, deed, ...children) {
    const on = { click: () => (element.hidePopover(), deed()) };
    return h("button", { type: "button", tabindex: -1, ...props, on }, ...children);
  }

  function onToggle(event) {
    if (event.newState === "open") button?.setAttribute("aria-expanded", "true");
    else button?.removeAttribute("aria-expanded");
  }

  /** The arrows walk; Tab leaves. The browser itself closes on Escape and gives the focus back. */
  function onKey(event) {
    event.stopPropagation(); // the arrows walk through the messages, too
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
