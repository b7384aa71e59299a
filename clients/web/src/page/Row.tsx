// Rows of lists: a picture, two lines of text, and actions.

import type { MouseEventHandler, ReactNode } from "react";
import { classes } from "../design";
import styles from "./Row.module.css";
import { Link } from "./router";

interface RowProps {
  picture?: ReactNode;
  title: ReactNode;
  /** Text at the end of the title line. */
  note?: ReactNode;
  text?: ReactNode;
  /** The path of the page that the row links to. */
  to?: string | undefined;
  /** An external URL. */
  href?: string;
  onClick?: MouseEventHandler | undefined;
  /** Buttons at the end, outside the link. */
  actions?: ReactNode;
  /** True if the text can wrap to several lines. */
  isLines?: boolean;
  /** True if the page of this row is open. */
  isCurrent?: boolean;
}

/** A row of a list: plain, a link or a button. */
export function Row(props: RowProps) {
  const {
    picture,
    title,
    note,
    text,
    to,
    href,
    onClick,
    actions,
    isLines = false,
    isCurrent,
  } = props;
  const content = (
    <>
      {picture}
      <span className={styles["lines"]}>
        <span className={styles["first"]}>
          <span className={styles["title"]}>{title}</span>
          {note != null && <span className={styles["note"]}>{note}</span>}
        </span>
        {text != null && (
          <span className={classes(styles["text"], isLines && styles["wrapped"])}>{text}</span>
        )}
      </span>
    </>
  );
  return (
    <li className={styles["row"]}>
      {to !== undefined ? (
        <Link
          to={to}
          className={styles["main"]}
          onClick={onClick}
          aria-current={isCurrent === true ? "page" : undefined}
        >
          {content}
        </Link>
      ) : href !== undefined ? (
        <a href={href} className={styles["main"]} target="_blank" rel="noopener noreferrer">
          {content}
        </a>
      ) : onClick !== undefined ? (
        <button type="button" className={styles["main"]} onClick={onClick}>
          {content}
        </button>
      ) : (
        <div className={styles["main"]}>{content}</div>
      )}
      {actions != null && <span className={styles["actions"]}>{actions}</span>}
    </li>
  );
}

/** A list of rows. */
export function Rows({ label, children }: { label: string; children: ReactNode }) {
  return (
    <ul className={styles["rows"]} aria-label={label}>
      {children}
    </ul>
  );
}
