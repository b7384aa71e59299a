// Debounced values, for requests that depend on typed text.

import { useEffect, useState } from "react";

/** Return the last value that did not change for `waitMs`. */
export function useDebounced<T>(value: T, waitMs: number): T {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(value), waitMs);
    return () => clearTimeout(timer);
  }, [value, waitMs]);
  return debounced;
}
