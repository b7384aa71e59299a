// Choices of the settings of a group.

const DAY_S = 86_400;

/** Choices of slow mode, in seconds between two messages; 0 is off. */
export const SLOW_CHOICES_S = [0, 5, 30, 60, 600];

/** Choices of disappearing messages, in seconds; 0 is off. */
export const RETENTION_CHOICES_S = [0, 1, 7, 30, 90, 365].map((days) => days * DAY_S);

/** Return the choices of a setting, including its current value. */
export function addCurrent(choices: readonly number[], current: number): number[] {
  return choices.includes(current) ? [...choices] : [...choices, current].sort((a, b) => a - b);
}
