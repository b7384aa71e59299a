// Links in messages. Pure functions.

/** A link of a message. */
export interface FoundLink {
  url: string;
  host: string;
  seq: number;
  ts: number;
}

const URL_LIKE = /\bhttps?:\/\/[^\s<>"'`]+/giu;
const TRAILING = /[.,;:!?…)\]}]+$/u;

/** Return the links of messages in order, without duplicates. */
export function linksOf(
  messages: readonly { seq: number; ts: number; body: string; deleted?: boolean }[],
): FoundLink[] {
  const found = new Map<string, FoundLink>();
  for (const { seq, ts, body, deleted } of messages) {
    if (deleted === true) continue;
    for (const [text] of body.matchAll(URL_LIKE)) {
      const url = parse(trimmed(text));
      if (url !== null && !found.has(url.href)) {
        found.set(url.href, { url: url.href, host: url.host, seq, ts });
      }
    }
  }
  return [...found.values()];
}

/** Remove trailing punctuation; a closing bracket stays if the URL also opens it. */
function trimmed(text: string): string {
  const end = TRAILING.exec(text);
  if (end === null) return text;
  const rest = text.slice(0, end.index);
  const opens = (rest.match(/[([{]/gu) ?? []).length - (rest.match(/[)\]}]/gu) ?? []).length;
  const closing = /^[)\]}]+/u.exec(end[0])?.[0] ?? "";
  return opens > 0 ? rest + closing.slice(0, opens) : rest;
}

function parse(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}
