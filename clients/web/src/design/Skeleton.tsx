// Placeholders for content that is loading.

import { useText } from "../i18n";
import styles from "./Skeleton.module.css";

/** Rows with a round picture and two lines of text. */
export function SkeletonRows({ count = 8 }: { count?: number }) {
  const text = useText();
  return (
    <div role="status" aria-label={text.common.loading}>
      {Array.from({ length: count }, (_, index) => (
        <div key={index} className={styles["row"]} aria-hidden>
          <span className={styles["circle"]} />
          <span className={styles["lines"]}>
            <span className={styles["line"]} />
            <span className={styles["line"]} />
          </span>
        </div>
      ))}
    </div>
  );
}

/** Lines of text. */
export function SkeletonText({ lines = 3 }: { lines?: number }) {
  const text = useText();
  return (
    <div role="status" aria-label={text.common.loading} className={styles["lines"]}>
      {Array.from({ length: lines }, (_, index) => (
        <span key={index} className={styles["line"]} aria-hidden />
      ))}
    </div>
  );
}
