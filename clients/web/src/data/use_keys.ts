// Keyboard shortcuts of the whole window.

import { useEffect, useRef } from "react";

/** Key → action; a modifier comes first: "Alt+n", "Mod+k" (Ctrl, or ⌘ on a Mac). */
export type Keys = Readonly<Record<string, (() => void) | undefined>>;

/**
 * Run actions for keys that nothing else has used. Open dialogs and menus come first; in a text
 * field, keys without a modifier are text, other than Escape.
 */
export function useKeys(keys: Keys): void {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.isComposing) return;
      if (document.querySelector("dialog[open], :popover-open:not([aria-hidden])") !== null) return;
      const name = nameOf(event);
      const isText = event.target instanceof Element && event.target.matches(TEXT_FIELDS);
      if (isText && name.length === 1) return;
      const action = current.current[name];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

const TEXT_FIELDS = "input, textarea, select, [contenteditable]";

function nameOf({ key, code, altKey, ctrlKey, metaKey }: KeyboardEvent): string {
  if (ctrlKey || metaKey) return altKey ? "" : `Mod+${key.toLowerCase()}`;
  // Option and a letter is another character on a Mac.
  return altKey ? `Alt+${code.startsWith("Key") ? code.slice(3).toLowerCase() : key}` : key;
}
