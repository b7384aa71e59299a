// Dates, times and numbers in the current language.

import type { Catalog } from "./catalog";
import { getCurrentLanguage, type Language } from "./language";

const DAY_MS = 86_400_000;
const formats = new Map<string, Intl.DateTimeFormat>();

function getDateFormat(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const { language } = getCurrentLanguage();
  const key = language + JSON.stringify(options);
  let format = formats.get(key);
  if (format === undefined) formats.set(key, (format = new Intl.DateTimeFormat(language, options)));
  return format;
}

const DIFFERENCE_MS_MIN = 60_000; // of clocks; smaller ones may be delays

let clockDifferenceMs = 0;

/** Set the server's time minus this device's, so that a wrong clock shows no wrong times. */
export function setClockDifference(differenceMs: number): void {
  clockDifferenceMs = Math.abs(differenceMs) < DIFFERENCE_MS_MIN ? 0 : differenceMs;
}

/** Return the current time of the server. */
export const getNowMs = (): number => Date.now() + clockDifferenceMs;

function countDaysAgo(date: Date, now: Date): number {
  const midnight = (day: Date): number => new Date(day).setHours(0, 0, 0, 0);
  return Math.round((midnight(now) - midnight(date)) / DAY_MS);
}

/** Return the time of day, such as 14:05. */
export function formatTime(tsMs: number): string {
  return getDateFormat({ hour: "numeric", minute: "2-digit" }).format(tsMs);
}

/** Return the date and time. */
export function formatDateTime(tsMs: number): string {
  return getDateFormat({ dateStyle: "long", timeStyle: "short" }).format(tsMs);
}

/** Return the shortest unambiguous form for lists: a time, a weekday or a date. */
export function formatShort(tsMs: number, now = new Date(getNowMs())): string {
  const date = new Date(tsMs);
  const days = countDaysAgo(date, now);
  if (days <= 0) return formatTime(tsMs);
  if (days < 7) return getDateFormat({ weekday: "short" }).format(date);
  if (date.getFullYear() === now.getFullYear()) {
    return getDateFormat({ day: "numeric", month: "short" }).format(date);
  }
  return getDateFormat({ dateStyle: "short" }).format(date);
}

/** Return a day as a heading: today, yesterday, or the date. */
export function formatDay(tsMs: number, now = new Date(getNowMs())): string {
  const date = new Date(tsMs);
  const days = countDaysAgo(date, now);
  const { language } = getCurrentLanguage();
  if (days >= 0 && days < 2) {
    const text = new Intl.RelativeTimeFormat(language, { numeric: "auto" }).format(-days, "day");
    return text.charAt(0).toLocaleUpperCase(language) + text.slice(1);
  }
  const year = date.getFullYear() === now.getFullYear() ? {} : { year: "numeric" as const };
  return getDateFormat({ weekday: "long", day: "numeric", month: "long", ...year }).format(date);
}

/** Return a past time in words, such as "5 minutes ago". A time in the future is now. */
export function formatRelative(tsMs: number, nowMs = getNowMs()): string {
  const { language } = getCurrentLanguage();
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
  const seconds = Math.min(0, tsMs - nowMs) / 1000;
  const units = [
    ["day", 86_400],
    ["hour", 3_600],
    ["minute", 60],
  ] as const;
  for (const [unit, length] of units) {
    if (Math.abs(seconds) >= length) return relative.format(Math.trunc(seconds / length), unit);
  }
  return relative.format(0, "minute");
}

/** Return a duration in its largest whole unit, such as "7 days". */
export function formatLongDuration(text: Catalog["group"], seconds: number): string {
  if (seconds % 86_400 === 0) return text.days(seconds / 86_400);
  if (seconds % 3600 === 0) return text.hours(seconds / 3600);
  if (seconds % 60 === 0) return text.minutes(seconds / 60);
  return text.seconds(seconds);
}

/** Return a number with separators. */
export function formatNumber(number: number, options: Intl.NumberFormatOptions = {}): string {
  return new Intl.NumberFormat(getCurrentLanguage().language, options).format(number);
}

/** Return a file size, such as "1.5 MB", in powers of 1,024. */
export function formatBytes(bytes: number): string {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"] as const;
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
  const options = { style: "unit", unit: units[power] ?? "byte", unitDisplay: "short" } as const;
  const maximumFractionDigits = power > 1 ? 1 : 0;
  return formatNumber(bytes / 1024 ** power, { ...options, maximumFractionDigits });
}

/** Return a list in words: "Ann, Ben and Cy". */
export function formatList(items: readonly string[], language?: Language): string {
  return new Intl.ListFormat(language ?? getCurrentLanguage().language).format(items);
}
