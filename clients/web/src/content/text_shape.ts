// Properties of a message's text: emoji only, length, and direction.

import { truncate } from "../i18n/graphemes";

const EMOJI_MAX = 6;
const EMOJI = /^(?:\p{Extended_Pictographic}|\p{Regional_Indicator}{2}|[0-9#*]\ufe0f?\u20e3)/u;
const CHARS_SHOWN = 1_200;
const LINES_SHOWN = 24;
const RTL_LETTER = /[\p{sc=Hebr}\p{sc=Arab}\p{sc=Syrc}\p{sc=Thaa}\p{sc=Nkoo}\p{sc=Adlm}]/u;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the server refuses these characters
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

// Texts that show nothing, which the server refuses.
const BLANK = /^[\s\p{Default_Ignorable_Code_Point}\u2800\ufff0-\ufffb\u{1d159}]*$/u;

/** Return a text without characters that the server refuses, and without outer blank lines. */
export function cleanText(text: string): string {
  if (BLANK.test(text)) return "";
  return text
    .replace(/\r\n?/g, "\n")
    .replace(CONTROLS, "")
    .replace(/[\ud800-\udfff]/gu, "\ufffd") // lone surrogates
    .replace(/^(?:[^\S\n]*\n)+/, "")
    .trimEnd();
}

/** Return the number of emoji if the text is one to six emoji and nothing else; otherwise 0. */
export function countOnlyEmoji(text: string): number {
  const compact = text.replace(/\s/g, "");
  if (compact === "" || compact.length > EMOJI_MAX * 16) return 0;
  const graphemes = [...new Intl.Segmenter().segment(compact)];
  const isEmoji = graphemes.every(({ segment }) => EMOJI.test(segment));
  return isEmoji && graphemes.length <= EMOJI_MAX ? graphemes.length : 0;
}

/** Return the beginning of a long text, up to the end of a line or word; null if it is short. */
export function findBeginning(text: string): string | null {
  const lines = text.split("\n");
  if (text.length <= CHARS_SHOWN * 1.25 && lines.length <= LINES_SHOWN * 1.25) return null;
  const start = lines.slice(0, LINES_SHOWN).join("\n");
  if (start.length <= CHARS_SHOWN) return start;
  const shortened = truncate(start, CHARS_SHOWN);
  const end = Math.max(shortened.lastIndexOf("\n"), shortened.lastIndexOf(" "));
  if (end > CHARS_SHOWN / 2) return shortened.slice(0, end);
  return shortened;
}

/** Return the direction of the first letter of a text, like `dir="auto"`. */
export function getDirection(text: string): "ltr" | "rtl" {
  return RTL_LETTER.test(/\p{L}/u.exec(text)?.[0] ?? "") ? "rtl" : "ltr";
}

/** Return the direction of the last line, which may be "Show more". */
export function getLastLineDirection(text: string): "ltr" | "rtl" {
  if (findBeginning(text) !== null) return getDirection(text);
  return getDirection(
    text
      .trim()
      .split(/\n[ \t]*\n/)
      .at(-1) ?? "",
  );
}
