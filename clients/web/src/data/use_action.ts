// Actions of the user: one at a time, with an error text.

import { useCallback, useRef, useState } from "react";
import { getErrorText } from "../i18n/errors";

/** Runs actions of a form or a button. */
export interface ActionState {
  isBusy: boolean;
  /** The error text of the last action, or null. */
  error: string | null;
  /** Run an action unless one is running; return whether it succeeded. */
  run: (action: () => Promise<unknown>) => Promise<boolean>;
  clear: () => void;
}

/** Return the state of actions that may fail. */
export function useAction(): ActionState {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const isRunning = useRef(false);

  const run = useCallback(async (action: () => Promise<unknown>) => {
    if (isRunning.current) return false;
    isRunning.current = true;
    setBusy(true);
    setError(null);
    try {
      await action();
      return true;
    } catch (cause) {
      setError(getErrorText(cause));
      return false;
    } finally {
      isRunning.current = false;
      setBusy(false);
    }
  }, []);
  const clear = useCallback(() => setError(null), []);
  return { isBusy, error, run, clear };
}
