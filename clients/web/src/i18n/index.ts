// Texts of the user interface. `useText()` returns the catalog of the current language.

import { useSyncExternalStore } from "react";
import type { Catalog } from "./catalog";
import { getCurrentLanguage, type Language, subscribeToLanguage } from "./language";

export type { Catalog } from "./catalog";
export { applyLanguage, LANGUAGES, type Language } from "./language";

/** Return the texts in the current language. */
export function useText(): Catalog {
  return useSyncExternalStore(subscribeToLanguage, getCurrentLanguage, getCurrentLanguage).catalog;
}

/** Return the current language, for date and number formats. */
export function useLanguage(): Language {
  return useSyncExternalStore(subscribeToLanguage, getCurrentLanguage, getCurrentLanguage).language;
}

/** Return the texts in the current language, outside of components. */
export function getText(): Catalog {
  return getCurrentLanguage().catalog;
}
