// Messages that disappear.

import { useEffect, useReducer } from "react";
import type { Message } from "tierchat";

const MARGIN_MS = 10;
const WAIT_MS_MAX = 2 ** 31 - 1;

/** Render again when a message expires: from then on, the SDK returns it without its text. */
export function useMessageExpiry(message: Message | null): void {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const expiresAtS = message?.deleted === true ? null : (message?.expires_at ?? null);
  useEffect(() => {
    if (expiresAtS === null) return undefined;
    const waitMs = Math.max(0, expiresAtS * 1000 - Date.now()) + MARGIN_MS;
    const timer = setTimeout(redraw, Math.min(waitMs, WAIT_MS_MAX));
    return () => clearTimeout(timer);
  }, [expiresAtS]);
}
