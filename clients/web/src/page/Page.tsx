// Layout of a page: a header and a scrolling column.

import { ArrowLeft } from "lucide-react";
import type { ReactNode } from "react";
import { classes, IconButton } from "../design";
import { useText } from "../i18n";
import styles from "./Page.module.css";

interface PageProps {
  title: string;
  subtitle?: ReactNode;
  /** The back button is shown on phones, and if `isBackShown` on wide screens. */
  onBack?: (() => void) | undefined;
  isBackShown?: boolean;
  actions?: ReactNode;
  /** Content below the header that does not scroll. */
  toolbar?: ReactNode;
  width?: "column" | "wide";
  children: ReactNode;
}

/** A page. Its title is the heading of level 1. */
export function Page(props: PageProps) {
  const {
    title,
    subtitle,
    onBack,
    isBackShown = false,
    actions,
    toolbar,
    width = "column",
  } = props;
  const text = useText();
  return (
    <div className={styles["page"]}>
      <header className={styles["header"]}>
        {onBack !== undefined && (
          <IconButton
            icon={ArrowLeft}
            label={text.common.back}
            className={classes(styles["back"], isBackShown && styles["always"])}
            onClick={onBack}
          />
        )}
        <div className={styles["titles"]}>
          <h1>
            <bdi>{title}</bdi>
          </h1>
          {subtitle != null && <p>{subtitle}</p>}
        </div>
        {actions}
      </header>
      {toolbar != null && <div className={styles["toolbar"]}>{toolbar}</div>}
      <div className={styles["scroller"]}>
        <div className={classes(styles["column"], width === "wide" && styles["wide"])}>
          {props.children}
        </div>
      </div>
    </div>
  );
}

interface ListPageProps {
  title: string;
  actions?: ReactNode;
  toolbar?: ReactNode;
  children: ReactNode;
}

/** A page of the list pane. */
export function ListPage({ title, actions, toolbar, children }: ListPageProps) {
  return (
    <div className={classes(styles["page"], styles["list"])}>
      <header className={styles["header"]}>
        <div className={styles["titles"]}>
          <h1>{title}</h1>
        </div>
        {actions}
      </header>
      {toolbar != null && <div className={styles["toolbar"]}>{toolbar}</div>}
      <div className={styles["scroller"]}>{children}</div>
    </div>
  );
}

interface SectionProps {
  title?: string;
  about?: ReactNode;
  action?: ReactNode;
  children: ReactNode;
  className?: string | undefined;
}

/** A card with a heading of level 2. */
export function Section({ title, about, action, children, className }: SectionProps) {
  return (
    <section className={classes(styles["section"], className)} aria-label={title}>
      {(title !== undefined || action != null) && (
        <div className={styles["sectionHeader"]}>
          {title !== undefined && <h2>{title}</h2>}
          {action}
        </div>
      )}
      {about != null && <p className={styles["about"]}>{about}</p>}
      {children}
    </section>
  );
}
