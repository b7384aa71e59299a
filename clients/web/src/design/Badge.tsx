// Small counts and labels.

import styles from "./Badge.module.css";

const COUNT_MAX = 999;

interface BadgeProps {
  count: number;
  /** True for a less prominent badge, such as for a muted chat. */
  isQuiet?: boolean;
  /** The accessible text, such as "3 unread messages". */
  label: string;
}

/** A count in a pill; renders nothing for 0. */
export function Badge({ count, isQuiet = false, label }: BadgeProps) {
  if (count <= 0) return null;
  return (
    <span className={styles["badge"]} data-quiet={isQuiet}>
      <span aria-hidden>{count > COUNT_MAX ? `${COUNT_MAX}+` : count}</span>
      <span className="visually-hidden">{label}</span>
    </span>
  );
}

/** A word in a pill, such as a role. */
export function Label({
  children,
  kind = "plain",
}: {
  children: string;
  kind?: "plain" | "accent" | "danger";
}) {
  return (
    <span className={styles["label"]} data-kind={kind}>
      {children}
    </span>
  );
}
