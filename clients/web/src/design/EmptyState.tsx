// Pages and lists that show nothing: because there is nothing, or because loading failed.

import { CloudAlert, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { useText } from "../i18n";
import { Button } from "./Button";
import styles from "./EmptyState.module.css";

interface EmptyStateProps {
  icon: LucideIcon;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
}

/** An icon, a title, an explanation, and the action that changes this. */
export function EmptyState({ icon: Icon, title, children, action }: EmptyStateProps) {
  return (
    <div className={styles["empty"]}>
      <span className={styles["icon"]}>
        <Icon size={28} aria-hidden />
      </span>
      <h2>{title}</h2>
      {children != null && <p>{children}</p>}
      {action}
    </div>
  );
}

/** A failed page, with a button that loads it again. */
export function ErrorState({ message, onRetry }: { message: string; onRetry?: () => void }) {
  const text = useText();
  const retry = onRetry && <Button onClick={onRetry}>{text.common.tryAgain}</Button>;
  return (
    <EmptyState icon={CloudAlert} title={text.common.loadFailed} action={retry}>
      {message}
    </EmptyState>
  );
}
