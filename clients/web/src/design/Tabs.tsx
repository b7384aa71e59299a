// Tabs: a choice between views of one page.

import type { KeyboardEvent } from "react";
import styles from "./Tabs.module.css";

interface TabsProps<Id extends string> {
  label: string;
  tabs: readonly { id: Id; label: string; count?: number }[];
  selected: Id;
  onSelect: (id: Id) => void;
  /** Id of the element that shows the selected view. */
  panel?: string;
}

/** Tabs in one or more rows; arrow keys move between them. */
export function Tabs<Id extends string>({ label, tabs, selected, onSelect, panel }: TabsProps<Id>) {
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>): void => {
    const isRightToLeft = getComputedStyle(event.currentTarget).direction === "rtl";
    const forward = isRightToLeft ? "ArrowLeft" : "ArrowRight";
    const step =
      event.key === forward ? 1 : ["ArrowLeft", "ArrowRight"].includes(event.key) ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const index = tabs.findIndex(({ id }) => id === selected);
    const next = (index + step + tabs.length) % tabs.length;
    const tab = tabs[next];
    if (tab === undefined) return;
    onSelect(tab.id);
    event.currentTarget.querySelectorAll<HTMLElement>('[role="tab"]')[next]?.focus();
  };
  return (
    <div className={styles["tabs"]} role="tablist" aria-label={label} onKeyDown={onKeyDown}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          className={styles["tab"]}
          aria-selected={tab.id === selected}
          aria-controls={tab.id === selected ? panel : undefined}
          tabIndex={tab.id === selected ? 0 : -1}
          onClick={() => onSelect(tab.id)}
        >
          {tab.label}
          {tab.count !== undefined && tab.count > 0 && (
            <span className={styles["count"]}>{tab.count}</span>
          )}
        </button>
      ))}
    </div>
  );
}
