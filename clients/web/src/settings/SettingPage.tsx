// Layout of a settings page: a header, with a back button on phones, and sections.

import { ArrowLeft } from "lucide-react";
import type { ReactNode } from "react";
import { IconButton } from "../design";
import { useText } from "../i18n";
import { navigate } from "../page/router";
import styles from "./SettingPage.module.css";

/** A settings page. */
export function SettingPage({ title, children }: { title: string; children: ReactNode }) {
  const text = useText();
  return (
    <div className={styles["page"]}>
      <header className={styles["header"]}>
        <span className={styles["back"]}>
          <IconButton
            icon={ArrowLeft}
            label={text.common.back}
            onClick={() => navigate("/settings")}
          />
        </span>
        <h1>{title}</h1>
      </header>
      <div className={styles["content"]}>{children}</div>
    </div>
  );
}

interface SettingSectionProps {
  /** Omitted if it would repeat the title of the page. */
  title?: string;
  hint?: string;
  children: ReactNode;
}

/** A section of a settings page. */
export function SettingSection({ title, hint, children }: SettingSectionProps) {
  return (
    <section className={styles["section"]}>
      {title !== undefined && <h2>{title}</h2>}
      {hint !== undefined && <p className={styles["hint"]}>{hint}</p>}
      {children}
    </section>
  );
}

/** An error or result below a form. */
export function FormMessage({
  error,
  success,
}: {
  error?: string | null;
  success?: string | null;
}) {
  if (error) {
    return (
      <p role="alert" className={styles["error"]}>
        {error}
      </p>
    );
  }
  return (
    <p role="status" className={styles["success"]}>
      {success}
    </p>
  );
}
