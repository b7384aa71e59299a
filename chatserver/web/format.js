// Formatting of times, names, counts and links. Pure; no DOM, no state.

const LANGUAGE =
  (globalThis.navigator?.languages ?? []).find((tag) => tag.startsWith("en")) ?? "en-GB";

const CLOCK = new Intl.DateTimeFormat(LANGUAGE, { hour: "numeric", minute: "2-digit" });
const WEEKDAY = new Intl.DateTimeFormat(LANGUAGE, { weekday: "long" });
const WEEKDAY_SHORT = new Intl.DateTimeFormat(LANGUAGE, { weekday: "short" });
const DAY = new Intl.DateTimeFormat(LANGUAGE, { weekday: "short", day: "numeric", month: "long" });
const DAY_SHORT = new Intl.DateTimeFormat(LANGUAGE, { day: "numeric", month: "short" });
const DAY_YEAR = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "long" });
const FULL = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "full", timeStyle: "medium" });
const LIST = new Intl.ListFormat("en-GB", { type: "conjunction" });
const GRAPHEMES = new Intl.Segmenter("en", { granularity: "grapheme" });

export const BODY_CHARS_MAX = 4000;
export const NAME_CHARS_MAX = 80;
const HUES = 12;
const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** Return whether `text` is a valid id of a user, chat or message (the server's rule). */
export function isId(text) {
  return ID.test(text);
}

/** Midnight, local time, of the day that `ms` is in. */
export function dayOf(ms) {
  const date = new Date(ms);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

/** Whole local days from `ms` to `now`; 0 is today. Rounded, for days that have 23 or 25 hours. */
function daysBetween(ms, now) {
  return Math.round((dayOf(now) - dayOf(ms)) / 86_400_000);
}

export function clockTime(ms) {
  return CLOCK.format(ms);
}

export function fullTime(ms) {
  return FULL.format(ms);
}

/** Name of a day for the separators of a chat: Today, Yesterday, Monday, Sat 3 January. */
export function dayLabel(ms, now) {
  const days = daysBetween(ms, now);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days > 1 && days < 7) return WEEKDAY.format(ms);
  const sameYear = new Date(ms).getFullYear() === new Date(now).getFullYear();
  return sameYear ? DAY.format(ms) : DAY_YEAR.format(ms);
}

/** A short time for the chat list. */
export function listTime(ms, now) {
  const days = daysBetween(ms, now);
  if (days <= 0) return CLOCK.format(ms);
  if (days === 1) return "Yesterday";
  if (days < 7) return WEEKDAY_SHORT.format(ms);
  return DAY_SHORT.format(ms);
}

/** "alice, bob and carol", with at most `shown` names. */
export function nameList(names, shown = 4) {
  if (names.length <= shown) return LIST.format(names);
  const rest = names.length - shown + 1;
  return LIST.format([...names.slice(0, shown - 1), `${rest} others`]);
}

/** The initials of a name: one or two letters. */
export function initials(name) {
  const words = name.split(/[\s_.,-]+/u).filter(Boolean);
  const letters = words.map(
    (word) => GRAPHEMES.segment(word)[Symbol.iterator]().next().value.segment,
  );
  const picked = letters.length > 1 ? [letters[0], letters[letters.length - 1]] : letters;
  return picked.join("").toUpperCase() || "?";
}

/** A number below 12 derived from a name, to choose its color. */
export function hueOf(name) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash >>> 8) % HUES;
}

/** A count for a badge. */
export function badgeCount(count) {
  return count > 999 ? "999+" : String(count);
}

/** "1 message", "2 messages". */
export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/** Length as the server counts it: code points, not UTF-16 units. */
export function textLength(text) {
  let surrogates = 0;
  for (let i = 0; i < text.length; i += 1) {
    const unit = text.charCodeAt(i);
    if (unit >= 0xd800 && unit < 0xdc00) surrogates += 1;
  }
  return text.length - surrogates;
}

/** Replace lone surrogates, left by cutting a text: they cannot be encoded as UTF-8. */
function wellFormed(text) {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

/** Normalize a composed text: no control characters, no surrounding blank lines. */
export function cleanBody(text) {
  return wellFormed(text)
    .replace(/\r\n?/g, "\n")
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "")
    .replace(/^(?:[^\S\n]*\n)+/, "")
    .trimEnd()
    .normalize("NFC");
}

/** A text on one line, for previews. */
export function oneLine(text, chars = 160) {
  const flat = text
    .slice(0, chars * 4)
    .replace(/\s+/gu, " ")
    .trim();
  return flat.length > chars ? `${wellFormed(flat.slice(0, chars))}…` : flat;
}

/** Return whether a text is one to three emoji, which are shown large. */
export function isOnlyEmoji(text) {
  if (text.length > 48) return false;
  let count = 0;
  for (const { segment } of GRAPHEMES.segment(text)) {
    if (segment.trim() === "") continue;
    if (!/^(?:\p{Extended_Pictographic}|\p{Regional_Indicator}{2})/u.test(segment)) return false;
    count += 1;
  }
  return count > 0 && count <= 3;
}

const URL_LIKE = /\bhttps?:\/\/[^\s<>"'`\u0000-\u001f]+/giu;

/**
 * Split a text into pieces `{text, href?}`. Only http and https URLs become links; the text is
 * unchanged.
 */
export function linkPieces(text) {
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(URL_LIKE)) {
    const shown = trimUrl(match[0]);
    const href = safeHref(shown);
    if (href === null) continue;
    if (match.index > from) pieces.push({ text: text.slice(from, match.index) });
    pieces.push({ text: shown, href });
    from = match.index + shown.length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from) });
  return pieces;
}

/** Trailing punctuation and unmatched closing brackets are not part of a URL. */
function trimUrl(url) {
  const count = new Map();
  for (const char of url) count.set(char, (count.get(char) ?? 0) + 1);
  let end = url.length;
  for (; end > 0; end -= 1) {
    const last = url[end - 1];
    const opening = { ")": "(", "]": "[", "}": "{" }[last];
    if (opening !== undefined) {
      if (count.get(last) <= (count.get(opening) ?? 0)) break;
      count.set(last, count.get(last) - 1);
    } else if (!".,;:!?…".includes(last)) break;
  }
  return url.slice(0, end);
}

function safeHref(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/** A file size such as "3.4 MB". */
export function fileSize(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB"];
  const power = Math.min(units.length, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[power - 1]}`;
}

/** Return whether an id belongs to a companion; the prefix is reserved. */
export function isCompanion(user) {
  return user.startsWith("ai-");
}
