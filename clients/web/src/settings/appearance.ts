// Appearance settings, saved in this browser: theme and language.

import { browserStorage } from "../data/browser_storage";
import { applyLanguage, type Language } from "../i18n";

/** The theme; null: the system's theme. */
export type Theme = "light" | "dark" | null;

interface Appearance {
  theme: Theme;
  language: Language | null;
}

const KEY = "tierchat.appearance"; // also in public/theme.js, which runs before the first paint

/** Return the settings; null: use the system's setting. */
export function readAppearance(): Appearance {
  const defaults = { theme: null, language: null };
  return { ...defaults, ...browserStorage.getJson<Partial<Appearance>>(KEY) };
}

/** Change settings and apply the theme. */
export function saveAppearance(changes: Partial<Appearance>): void {
  const next = { ...readAppearance(), ...changes };
  browserStorage.setJson(KEY, next);
  const root = document.documentElement;
  if (next.theme === null) delete root.dataset["theme"];
  else root.dataset["theme"] = next.theme;
}

/** Change the language and save the choice; null: use the browser's language. */
export async function chooseLanguage(language: Language | null): Promise<void> {
  saveAppearance({ language });
  await applyLanguage(language);
}
