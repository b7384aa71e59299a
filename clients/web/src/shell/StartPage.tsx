// Shown while the chats are loaded for the first time.

import { useText } from "../i18n";
import type { ConnectionProblem } from "../session/session";
import styles from "./StartPage.module.css";

/** Shows the logo, and the reason if there is no connection. */
export function StartPage({ problem }: { problem: ConnectionProblem | null }) {
  const { loading, connection } = useText().common;
  const texts = { network: connection.startFailed, gateway: connection.refused(location.origin) };
  return (
    <main className={styles["start"]}>
      <img src="/icon.svg" alt="" width={56} height={56} />
      <p role="status">{problem === null ? loading : texts[problem]}</p>
    </main>
  );
}
