// Placeholders for empty or failed pages and lists.

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
  /** True if the title is the title of the page. */
  isPage?: boolean;
}

/** An icon, a title, an explanation and an action. */
export function EmptyState(props: EmptyStateProps) {
  const { icon: Icon, title, children, action, isPage = false } = props;
  const Title = isPage ? "h1" : "h2";
  return (
    <div className={styles["empty"]}>
      <span className={styles["icon"]}>
        <Icon size={28} aria-hidden />
      </span>
      <Title>{title}</Title>
      {children != null && <p>{children}</p>}
      {action}
    </div>
  );
}

/** The error of a page, with a button that reloads it. */
export function ErrorState({ message, onRetry }: { message: string; onRetry?: () => void }) {
  const text = useText();
  const retry = onRetry && <Button onClick={onRetry}>{text.common.tryAgain}</Button>;
  return (
    <EmptyState icon={CloudAlert} title={text.common.loadFailed} action={retry}>
      {message}
    </EmptyState>
  );
}
