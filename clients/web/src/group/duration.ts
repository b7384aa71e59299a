// Durations in words, for settings of a group.

import type { Catalog } from "../i18n";

const DAY_S = 86_400;

/** Choices of slow mode, in seconds between two messages; 0 is off. */
export const SLOW_CHOICES_S = [0, 5, 30, 60, 600];

/** Choices of disappearing messages, in seconds; 0 is off. */
export const RETENTION_CHOICES_S = [0, 1, 7, 30, 90, 365].map((days) => days * DAY_S);

/** Return a duration in its largest whole unit, such as "7 days". */
export function formatLongDuration(text: Catalog["group"], seconds: number): string {
  if (seconds % DAY_S === 0) return text.days(seconds / DAY_S);
  if (seconds % 3600 === 0) return text.hours(seconds / 3600);
  if (seconds % 60 === 0) return text.minutes(seconds / 60);
  return text.seconds(seconds);
}

/** Return the choices of a setting, including its current value. */
export function addCurrent(choices: readonly number[], current: number): number[] {
  return choices.includes(current) ? [...choices] : [...choices, current].sort((a, b) => a - b);
}
