// The language of the user interface: the user's choice, or the browser's.

import type { Catalog } from "./catalog";
import { en } from "./en";

/** The languages with a catalog, each with its own name. */
export const LANGUAGES = { en: "English", de: "Deutsch", zh: "中文" } as const;

/** A language with a catalog. */
export type Language = keyof typeof LANGUAGES;

const LOADERS: Record<Language, () => Promise<Catalog>> = {
  en: async () => en,
  de: async () => (await import("./de")).de,
  zh: async () => (await import("./zh")).zh,
};

interface Current {
  language: Language;
  catalog: Catalog;
}

let current: Current = { language: "en", catalog: en };
const listeners = new Set<() => void>();

/** Return the current language and its catalog. */
export function getCurrentLanguage(): Current {
  return current;
}

/** Call `listener` after each change of the language. */
export function subscribeToLanguage(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Load a language's catalog and show its texts; null: the browser's language. */
export async function applyLanguage(chosen: Language | null): Promise<void> {
  const language = chosen ?? findPreferredLanguage();
  try {
    current = { language, catalog: await LOADERS[language]() };
  } catch {
    return; // offline, and the catalog is not cached
  }
  document.documentElement.lang = language;
  for (const listener of listeners) listener();
}

function findPreferredLanguage(): Language {
  const languages = navigator.languages.map((tag) => tag.split("-")[0] ?? "");
  return (languages.find((tag) => tag in LANGUAGES) as Language | undefined) ?? "en";
}
