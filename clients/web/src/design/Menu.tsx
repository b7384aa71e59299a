// Menus: a list of actions in the top layer, with the keyboard keys of the ARIA menu pattern.

import type { LucideIcon } from "lucide-react";
import {
  type KeyboardEvent,
  type ReactNode,
  useCallback,
  useEffect,
  useId,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { IconButton } from "./Button";
import { classes } from "./classes";
import styles from "./Menu.module.css";
import { useLayer } from "./use_layer";

/** An action of a menu. */
export interface MenuItem {
  label: string;
  icon?: LucideIcon | undefined;
  onSelect: () => void;
  isDangerous?: boolean;
  isDisabled?: boolean;
  /** Draws a line before this item. */
  startsGroup?: boolean;
}

/** The point or element at which a menu opens. */
export type MenuAnchor = { x: number; y: number } | HTMLElement;

interface MenuProps {
  items: readonly MenuItem[];
  label: string;
  anchor: MenuAnchor;
  onClose: () => void;
  /** Shown above the items. */
  header?: ReactNode;
}

/** A menu; render it while it is open. */
export function Menu({ items, label, anchor, onClose, header }: MenuProps) {
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const menu = list.current;
    if (menu === null) return;
    if (!menu.matches(":popover-open")) menu.showPopover();
    // The size changes with the items; the menu must stay inside the window.
    positionMenu(menu, anchor);
    if (menu.contains(document.activeElement)) return;
    menu.querySelector<HTMLElement>('[role="menuitem"]:enabled')?.focus();
  }, [anchor, items, header]);
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const opener = anchor instanceof HTMLElement ? anchor : document.activeElement;
    const onPointerDown = (event: PointerEvent): void => {
      if (event.target instanceof Node && list.current?.contains(event.target)) return;
      if (anchor instanceof HTMLElement && anchor.contains(event.target as Node)) return;
      close.current();
    };
    const onResize = (): void => close.current();
    document.addEventListener("pointerdown", onPointerDown, true);
    window.addEventListener("resize", onResize);
    return () => {
      document.removeEventListener("pointerdown", onPointerDown, true);
      window.removeEventListener("resize", onResize);
      const { activeElement } = document;
      const hasMoved = activeElement !== null && activeElement !== document.body;
      if (!hasMoved && opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, [anchor]);
  const closeByKey = (): void => {
    onClose();
    if (anchor instanceof HTMLElement) anchor.focus();
  };
  useLayer(closeByKey);
  const onKeyDown = (event: KeyboardEvent): void => {
    const enabled = [
      ...(list.current?.querySelectorAll<HTMLElement>('[role="menuitem"]:enabled') ?? []),
    ];
    const index = enabled.indexOf(document.activeElement as HTMLElement);
    const targets: Record<string, number> = {
      ArrowDown: (index + 1) % enabled.length,
      ArrowUp: (index - 1 + enabled.length) % enabled.length,
      Home: 0,
      End: enabled.length - 1,
    };
    const next = targets[event.key];
    if (next !== undefined) {
      event.preventDefault();
      enabled[next]?.focus();
    } else if (event.key === "Tab") {
      event.preventDefault();
      closeByKey();
    }
  };
  return (
    <div ref={list} popover="manual" className={styles["menu"]} onKeyDown={onKeyDown}>
      {header}
      <div role="menu" aria-label={label}>
        {items.map((item) => (
          <button
            key={item.label}
            type="button"
            role="menuitem"
            tabIndex={-1}
            disabled={item.isDisabled === true}
            className={classes(
              styles["item"],
              item.isDangerous === true && styles["danger"],
              item.startsGroup === true && styles["group"],
            )}
            onClick={() => {
              onClose();
              item.onSelect();
            }}
          >
            {item.icon !== undefined && <item.icon size={18} aria-hidden />}
            {item.label}
          </button>
        ))}
      </div>
    </div>
  );
}

interface MenuButtonProps {
  icon: LucideIcon;
  label: string;
  items: readonly MenuItem[];
  size?: "s" | "m";
}

/** An icon button that opens a menu. */
export function MenuButton({ icon, label, items, size = "m" }: MenuButtonProps) {
  const [anchor, setAnchor] = useState<HTMLElement | null>(null);
  const id = useId();
  const close = useCallback(() => setAnchor(null), []);
  return (
    <>
      <IconButton
        id={id}
        icon={icon}
        label={label}
        size={size}
        aria-haspopup="menu"
        aria-expanded={anchor !== null}
        onClick={(event) => setAnchor(anchor === null ? event.currentTarget : null)}
      />
      {anchor !== null && <Menu items={items} label={label} anchor={anchor} onClose={close} />}
    </>
  );
}

const GAP = 4;
const EDGE = 8;

/** Position a menu next to its anchor, inside the window. */
function positionMenu(menu: HTMLElement, anchor: MenuAnchor): void {
  const { width, height } = menu.getBoundingClientRect();
  const box =
    anchor instanceof HTMLElement
      ? anchor.getBoundingClientRect()
      : new DOMRect(anchor.x, anchor.y);
  const isRightToLeft = getComputedStyle(menu).direction === "rtl";
  let x = box.left + width + EDGE > innerWidth !== isRightToLeft ? box.right - width : box.left;
  let y =
    box.bottom + GAP + height + EDGE > innerHeight ? box.top - GAP - height : box.bottom + GAP;
  x = Math.max(EDGE, Math.min(x, innerWidth - width - EDGE));
  y = Math.max(EDGE, Math.min(y, innerHeight - height - EDGE));
  menu.style.left = `${x}px`;
  menu.style.top = `${y}px`;
}
