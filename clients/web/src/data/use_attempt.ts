// Actions whose errors are shown as toasts.

import { useCallback } from "react";
import { showToast } from "../design";
import { getErrorText } from "../i18n/errors";

/** Return a function that runs an action, shows its error, and returns whether it succeeded. */
export function useAttempt(): (action: () => Promise<unknown>) => Promise<boolean> {
  return useCallback(async (action: () => Promise<unknown>) => {
    try {
      await action();
      return true;
    } catch (error) {
      showToast(getErrorText(error), { kind: "error" });
      return false;
    }
  }, []);
}
