// Keyboard shortcuts of the whole window.

import { useEffect, useRef } from "react";
import { isComposing } from "../design/use_layer";

/** Key → action, such as "Alt+n" or "Mod+k" (Ctrl, or ⌘ on a Mac). */
export type Keys = Readonly<Record<string, (() => void) | undefined>>;

/**
 * Run actions for unhandled keys. Keys are ignored while a dialog or menu is open. In a text field,
 * keys that type a character are ignored.
 */
export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || isComposing(event)) return;
      if (document.querySelector("dialog[open], :popover-open:not([aria-hidden])") !== null) return;
      const name = getKeyName(event);
      const isText = event.target instanceof Element && event.target.matches(TEXT_FIELDS);
      if (isText && name.length === 1) return;
      const action = latest.current[name];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

const TEXT_FIELDS = "input, textarea, select, [contenteditable]";

function getKeyName({ key, code, altKey, ctrlKey, metaKey }: KeyboardEvent): string {
  if (ctrlKey || metaKey) return altKey ? "" : `Mod+${key.toLowerCase()}`;
  // On a Mac, Option with a letter produces another character.
  return altKey ? `Alt+${code.startsWith("Key") ? code.slice(3).toLowerCase() : key}` : key;
}
