// Changes of a form that the user leaves without saving: they are saved, not lost.

import { useEffect, useRef } from "react";

/**
 * Call `save` when the user leaves the form, also with Escape or a link; null: nothing is unsaved.
 * If the user closes the page, the browser asks first, because a request may not finish.
 */
export function useSaveOnLeave(save: (() => void) | null): void {
  const latest = useRef(save);
  latest.current = save;
  useEffect(() => {
    const onUnload = (event: BeforeUnloadEvent): void => {
      if (latest.current !== null) event.preventDefault();
    };
    addEventListener("beforeunload", onUnload);
    return () => {
      removeEventListener("beforeunload", onUnload);
      latest.current?.();
    };
  }, []);
}
