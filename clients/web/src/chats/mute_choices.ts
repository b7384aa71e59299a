// Choices of how long the notifications of a chat are muted.

const HOUR_S = 3_600;
const DAY_S = 24 * HOUR_S;

/** Labels are texts of the catalog "group"; null: until the user unmutes the chat. */
export const MUTE_CHOICES = [
  { label: "for1h", seconds: HOUR_S },
  { label: "for8h", seconds: 8 * HOUR_S },
  { label: "for1d", seconds: DAY_S },
  { label: "for7d", seconds: 7 * DAY_S },
  { label: "always", seconds: null },
] as const;
