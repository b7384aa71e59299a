// The emoji picker in a popover. The picker and its data are loaded when it is first opened.

import { lazy, Suspense, useEffect, useLayoutEffect, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { SkeletonText } from "../design";
import { isComposing, useLayer } from "../design/use_layer";
import { useText } from "../i18n";
import styles from "./EmojiPopover.module.css";

const EmojiPicker = lazy(() => import("./EmojiPicker"));

interface EmojiPopoverProps {
  anchor: HTMLElement | { x: number; y: number };
  /** The element to focus after closing; by default the element that had the focus. */
  returnFocusTo?: HTMLElement | null;
  onPick: (emoji: string) => void;
  onClose: () => void;
}

const GAP = 6;

/** A picker; render it while it is open. It closes after a choice. */
export function EmojiPopover({ anchor, returnFocusTo, onPick, onClose }: EmojiPopoverProps) {
  const words = useText().conversation;
  const element = useRef<HTMLDivElement>(null);
  const [typed, setTyped] = useState(""); // while the picker is loaded
  const close = useRef(onClose);
  close.current = onClose;
  useLayer(onClose);
  useLayoutEffect(() => {
    const popover = element.current;
    if (popover === null) return;
    popover.showPopover();
    positionPopover(popover, anchor);
  }, [anchor]);
  useEffect(() => {
    const opener = document.activeElement;
    const onDown = (event: PointerEvent): void => {
      if (!(event.target instanceof Node)) return;
      const isInside = element.current?.contains(event.target) === true;
      const isAnchor = anchor instanceof HTMLElement && anchor.contains(event.target);
      if (!isInside && !isAnchor) close.current();
    };
    document.addEventListener("pointerdown", onDown, true);
    return () => {
      document.removeEventListener("pointerdown", onDown, true);
      const target = returnFocusTo ?? opener;
      if (target instanceof HTMLElement && target.isConnected) target.focus();
    };
  }, [anchor, returnFocusTo]);
  return createPortal(
    <div
      ref={element}
      popover="manual"
      role="dialog"
      aria-label={words.emoji}
      className={styles["popover"]}
      onKeyDown={(event) => {
        // The picker listens on the document: Enter of an input method must not choose an emoji.
        if (isComposing(event.nativeEvent)) event.stopPropagation();
      }}
      onPointerDown={(event) => event.stopPropagation()}
    >
      <Suspense fallback={<LoadingPicker onType={setTyped} />}>
        <EmojiPicker
          typed={typed}
          onPick={(emoji) => {
            onClose();
            onPick(emoji);
          }}
        />
      </Suspense>
    </div>,
    (anchor instanceof HTMLElement && anchor.closest("dialog")) || document.body,
  );
}

/** Shown while the picker is loaded: the search field already takes what the user types. */
function LoadingPicker({ onType }: { onType: (text: string) => void }) {
  const words = useText().conversation;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []); // when the popover is shown
  return (
    <div className={styles["picker"]}>
      <input
        ref={field}
        type="search"
        className={styles["search"]}
        placeholder={words.emojiSearch}
        aria-label={words.emojiSearch}
        onChange={(event) => onType(event.target.value)}
      />
      <SkeletonText />
    </div>
  );
}

function positionPopover(popover: HTMLElement, anchor: EmojiPopoverProps["anchor"]): void {
  const { width, height } = popover.getBoundingClientRect();
  const box =
    anchor instanceof HTMLElement
      ? anchor.getBoundingClientRect()
      : new DOMRect(anchor.x, anchor.y);
  const isBelow = box.bottom + GAP + height < innerHeight;
  const top = isBelow ? box.bottom + GAP : box.top - GAP - height;
  const isRightToLeft = getComputedStyle(popover).direction === "rtl";
  const left = isRightToLeft ? box.right - width : box.left;
  popover.style.left = `${Math.max(GAP, Math.min(left, innerWidth - width - GAP))}px`;
  popover.style.top = `${Math.max(GAP, Math.min(top, innerHeight - height - GAP))}px`;
}
