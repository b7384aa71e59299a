// Push messages. They are untrusted, so each field is checked before it is shown.

/** The notification of a push message. */
export interface Notice {
  chat: string;
  title: string;
  body: string;
  timeMs: number;
  /** The number of unread messages in all chats; null: not counted. */
  badge: number | null;
}

const APP_NAME = "tierchat";
const CHAT = /^(?!\.{1,2}$)[A-Za-z0-9_~:.-]{1,140}$/;
const TITLE_CHARS_MAX = 80; // of the sender, and of the group
const BODY_CHARS_MAX = 200;
const CLOCK_DIFFERENCE_MS_MAX = 86_400_000;
// Direction marks, and characters that are invisible in one line.
const HIDDEN = /[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\p{Cs}]/gu;
const BREAKS = /[\p{Cc}\p{Z}]+/gu;

/** Return whether a value is a chat id, which is safe in a path. */
export function isChatId(value: unknown): value is string {
  return typeof value === "string" && CHAT.test(value);
}

/** Return the notification of a push message; null if its format is invalid. */
export function parseNotice(data: unknown, nowMs: number): Notice | null {
  if (typeof data !== "object" || data === null) return null;
  const { chat, name, sender, title, text, ts, badge } = data as Record<string, unknown>;
  if (!isChatId(chat)) return null;
  const group = cleanLine(title, TITLE_CHARS_MAX);
  const person = cleanLine(name, TITLE_CHARS_MAX) || cleanLine(sender, TITLE_CHARS_MAX) || APP_NAME;
  const timeMs = typeof ts === "number" ? Math.floor(ts / 1000) : NaN; // of microseconds
  return {
    chat,
    title: group === "" ? person : `${person} · ${group}`,
    body: cleanLine(text, BODY_CHARS_MAX) || "…",
    timeMs: timeMs > 0 && timeMs < nowMs + CLOCK_DIFFERENCE_MS_MAX ? timeMs : nowMs,
    badge: typeof badge === "number" && Number.isSafeInteger(badge) && badge >= 0 ? badge : null,
  };
}

/** Return a text as one line of at most `charsMax` characters; "" for other values. */
function cleanLine(value: unknown, charsMax: number): string {
  if (typeof value !== "string") return "";
  const start = value.slice(0, charsMax * 8); // limits the work for hidden characters
  const characters = [...start.replace(HIDDEN, "").replace(BREAKS, " ").trim()];
  const isLong = characters.length > charsMax;
  return isLong
    ? `${characters
        .slice(0, charsMax - 1)
        .join("")
        .trimEnd()}…`
    : characters.join("");
}
