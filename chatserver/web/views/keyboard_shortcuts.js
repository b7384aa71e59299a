// Keyboard shortcuts, and the dialog that lists them.

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
  ["Move through chats or messages", [["↓"], ["↑"]]],
  ["Reply to selected message", [["R"]]],
  ["Copy selected message", [["C"]]],
  ["Edit selected message", [["E"]]],
  ["Open menu of selected message", [["M"]]],
  ["Go to the latest message", [[ALT, "End"]]],
  ["Send message", [["Enter"]]],
  ["New line", [["Shift", "Enter"]]],
  ["Go back or close", [["Esc"]]],
  ["Show keyboard shortcuts", [["?"]]],
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
 * Listen for window-wide shortcuts.
 *
 * `actions`: search, newChat, step(by), toEnd, back, help. Text fields and open dialogs take
 * precedence.
 */
export function listenForShortcuts(actions) {
  function onKey(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open], :popover-open")) return;
    const action = find(event);
    if (action === undefined) return;
    event.preventDefault();
    action();
  }

  function find(event) {
    const { key, code, altKey, ctrlKey, metaKey } = event;
    if ((ctrlKey || metaKey) && !altKey && key.toLowerCase() === "k") return actions.search;
    if (ctrlKey || metaKey) return undefined;
    if (altKey) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[key];
      if (step !== undefined) return () => actions.step(step);
      return { KeyN: actions.newChat, End: actions.toEnd }[code];
    }
    if (key === "Escape") return actions.back;
    const isWriting = event.target.closest?.("input, textarea") !== null;
    return isWriting ? undefined : { "/": actions.search, "?": actions.help }[key];
  }

  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}
