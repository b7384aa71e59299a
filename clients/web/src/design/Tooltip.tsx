// Tooltips for all elements with `data-tooltip`, with one element in the top layer.

import { useEffect, useRef } from "react";
import styles from "./Tooltip.module.css";

const DELAY_MS = 500;
const GAP = 6;

/** Shows the tooltip of the hovered or focused element. Must be rendered once. */
export function Tooltips() {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const tooltip = element.current;
    if (tooltip === null || !matchMedia("(hover: hover)").matches) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let currentTarget: Element | null = null;
    const hide = (): void => {
      clearTimeout(timer);
      currentTarget = null;
      if (tooltip.matches(":popover-open")) tooltip.hidePopover();
    };
    const schedule = (event: Event): void => {
      const target =
        event.target instanceof Element ? event.target.closest("[data-tooltip]") : null;
      if (target === currentTarget) return;
      hide();
      if (target === null || (event.type === "focusin" && !target.matches(":focus-visible")))
        return;
      currentTarget = target;
      timer = setTimeout(() => show(tooltip, target), DELAY_MS);
    };
    document.addEventListener("pointerover", schedule);
    document.addEventListener("focusin", schedule);
    for (const type of ["pointerdown", "keydown", "scroll", "focusout"]) {
      document.addEventListener(type, hide, true);
    }
    return () => {
      hide();
      document.removeEventListener("pointerover", schedule);
      document.removeEventListener("focusin", schedule);
      for (const type of ["pointerdown", "keydown", "scroll", "focusout"]) {
        document.removeEventListener(type, hide, true);
      }
    };
  }, []);
  return <div ref={element} popover="manual" className={styles["tooltip"]} aria-hidden />;
}

function show(tooltip: HTMLElement, target: Element): void {
  if (!target.isConnected) return;
  tooltip.textContent = target.getAttribute("data-tooltip");
  tooltip.showPopover();
  const box = target.getBoundingClientRect();
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(
    Math.max(GAP, box.left + (box.width - width) / 2),
    innerWidth - width - GAP,
  );
  const isBelow = box.bottom + GAP + height < innerHeight;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${isBelow ? box.bottom + GAP : box.top - GAP - height}px`;
}
