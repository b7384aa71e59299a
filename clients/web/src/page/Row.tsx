// Rows of lists: a picture, two lines of text, and actions.

import type { MouseEventHandler, ReactNode } from "react";
import { Link } from "../app/router";
import { classes } from "../design";
import styles from "./Row.module.css";

interface RowProps {
  picture?: ReactNode;
  title: ReactNode;
  /** Beside the title, at the end. */
  note?: ReactNode;
  text?: ReactNode;
  /** The page of a row that is a link. */
  to?: string | undefined;
  /** A page elsewhere. */
  href?: string;
  onClick?: MouseEventHandler | undefined;
  /** Buttons after the row; they are not part of its link. */
  actions?: ReactNode;
  /** The text may have several lines. */
  isLines?: boolean;
  /** The page of this row is open. */
  isCurrent?: boolean;
}

/** A row of a list; a link or a button if it leads somewhere. */
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
