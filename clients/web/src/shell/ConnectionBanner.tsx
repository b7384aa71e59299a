// A banner for a lost connection. It is not shown for short interruptions.

import { CloudOff } from "lucide-react";
import { useEffect, useState, useSyncExternalStore } from "react";
import { useConnection } from "tierchat/react";
import { useText } from "../i18n";
import { useOpenSession } from "../session/session_context";
import styles from "./ConnectionBanner.module.css";

const DELAY_MS = 4_000;

/** A banner above the page while there is no connection. */
export function ConnectionBanner() {
  const text = useText();
  const { isOnline } = useConnection();
  const hasNetwork = useSyncExternalStore(subscribe, () => navigator.onLine);
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    if (isOnline) return undefined;
    const timer = setTimeout(() => setLate(true), DELAY_MS);
    return () => {
      clearTimeout(timer);
      setLate(false);
    };
  }, [isOnline]);
  const { problem } = useOpenSession();
  const isShown = !hasNetwork || (!isOnline && isLate);
  const { connecting, offline, refused } = text.common.connection;
  const reason = problem === "gateway" ? refused(location.origin) : connecting;
  return (
    <div role="status" className={styles["place"]}>
      {isShown && (
        <p className={styles["banner"]}>
          <CloudOff size={16} aria-hidden />
          {hasNetwork ? reason : offline}
        </p>
      )}
    </div>
  );
}

function subscribe(listener: () => void): () => void {
  addEventListener("online", listener);
  addEventListener("offline", listener);
  return () => {
    removeEventListener("online", listener);
    removeEventListener("offline", listener);
  };
}
