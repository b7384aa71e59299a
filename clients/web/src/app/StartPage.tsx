// Shown while the chats are loaded for the first time.

import { useEffect, useState } from "react";
import { useText } from "../i18n";
import styles from "./StartPage.module.css";

const HINT_DELAY_MS = 4_000;

/** Shows the logo, and after a few seconds the reason for the delay. */
export function StartPage() {
  const text = useText();
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), HINT_DELAY_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <main className={styles["start"]}>
      <img src="/icon.svg" alt="" width={56} height={56} />
      <p role="status">{isLate ? text.common.connection.startFailed : text.common.loading}</p>
    </main>
  );
}
