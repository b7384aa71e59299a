// Times of day for charts and tables.

import { getCurrentLanguage } from "../i18n/language";

/** Return a time of day, with or without seconds. */
export function formatClock(tsMs: number, detail: "seconds" | "minutes" = "seconds"): string {
  const seconds = detail === "seconds" ? { second: "2-digit" as const } : {};
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...seconds } as const;
  return new Intl.DateTimeFormat(getCurrentLanguage().language, options).format(tsMs);
}
