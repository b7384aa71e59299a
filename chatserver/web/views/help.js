// The keyboard shortcuts, and the dialog that lists them.

import { createDialog } from "./dialog.js";
import { h } from "./dom.js";

const IS_MAC = /mac|iphone|ipad/i.test(
  navigator.userAgentData?.platform ?? navigator.platform ?? "",
);
const ALT = IS_MAC ? "⌥" : "Alt";
const MOD = IS_MAC ? "⌘" : "Ctrl";

const LIST = [
  ["Search chats", [[MOD, "K"], ["/"]]],
  ["New chat", [[ALT, "N"]]],
  [
    "Next or previous chat",
    [
      [ALT, "↓"],
      [ALT, "↑"],
    ],
  ],
  ["Walk through the list or the messages", [["↓"], ["↑"]]],
  ["Reply to the chosen message", [["R"]]],
  ["Copy the chosen message", [["C"]]],
  ["Edit the chosen message", [["E"]]],
  ["Menu of the chosen message", [["M"]]],
  ["Go to the latest message", [[ALT, "End"]]],
  ["Send", [["Enter"]]],
  ["New line", [["Shift", "Enter"]]],
  ["Back, or close", [["Esc"]]],
  ["This help", [["?"]]],
];

export function createHelp() {
  const dialog = createDialog({ title: "Keyboard shortcuts", class: "dialog-help" });
  const lines = LIST.flatMap(([what, ways]) => [
    h("dt", {}, what),
    h("dd", {}, ...waysNodes(ways)),
  ]);
  dialog.body.append(h("dl", { class: "shortcuts" }, ...lines));
  return dialog;
}

function waysNodes(ways) {
  return ways.flatMap((keys, index) => [
    ...(index > 0 ? [h("span", { class: "or" }, "or")] : []),
    h("span", { class: "keys" }, ...keys.map((key) => h("kbd", {}, key))),
  ]);
}

/**
 * Listen for the shortcuts of the whole window.
 *
 * `deeds`: search, newChat, step(by), toEnd, back, help. A deed of the page's own fields and of an
 * open dialog comes first.
 */
export function listenForShortcuts(deeds) {
  function onKey(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open], :popover-open")) return;
    const deed = find(event);
    if (deed === undefined) return;
    event.preventDefault();
    deed();
  }

  function find(event) {
    const { key, code, altKey, ctrlKey, metaKey } = event;
    if ((ctrlKey || metaKey) && !altKey && key.toLowerCase() === "k") return deeds.search;
    if (ctrlKey || metaKey) return undefined;
    if (altKey) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[key];
      if (step !== undefined) return () => deeds.step(step);
      return { KeyN: deeds.newChat, End: deeds.toEnd }[code];
    }
    if (key === "Escape") return deeds.back;
    const isWriting = event.target.closest?.("input, textarea") !== null;
    return isWriting ? undefined : { "/": deeds.search, "?": deeds.help }[key];
  }

  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}
