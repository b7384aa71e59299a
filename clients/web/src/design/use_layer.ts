// The stack of open layers: menus, popovers, dialogs, selections, and the open page below them.
// Escape closes the layer on top, and nothing else.
//
// A key that a text field or a widget handles itself (`preventDefault`) closes no layer.

import { useEffect, useRef } from "react";

/** A page is below all other layers, also if it is opened later. */
type Level = "page" | "layer";

interface Layer {
  close: () => void;
}

const layers: Layer[] = [];

function onKeyDown(event: KeyboardEvent): void {
  if (event.key !== "Escape" || event.defaultPrevented || isComposing(event)) return;
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const top = layers.at(-1);
  if (top === undefined) return;
  event.preventDefault(); // also for the browser's own handling of dialogs
  top.close();
}

/** Return whether a key belongs to an input method (IME), such as Enter that accepts a word. */
export function isComposing(event: Pick<KeyboardEvent, "isComposing" | "keyCode">): boolean {
  // Safari ends the composition before this event; the code 229 marks it.
  return event.isComposing || event.keyCode === 229;
}

/** Close a layer with Escape while it is open and on top; `close` null: it is not open. */
export function useLayer(close: (() => void) | null, level: Level = "layer"): void {
  const latest = useRef(close);
  latest.current = close;
  const isOpen = close !== null;
  useEffect(() => {
    if (!isOpen) return undefined;
    const layer: Layer = { close: () => latest.current?.() };
    if (layers.length === 0) addEventListener("keydown", onKeyDown);
    if (level === "page") layers.unshift(layer);
    else layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
      if (layers.length === 0) removeEventListener("keydown", onKeyDown);
    };
  }, [isOpen, level]);
}
