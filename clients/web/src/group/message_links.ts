// Links in messages. Pure functions.

/** A link of a message. */
export interface MessageLink {
  url: string;
  host: string;
  seq: number;
  ts: number;
}

const URL_LIKE = /\bhttps?:\/\/[^\s<>"'`]+/giu;
const TRAILING = /[.,;:!?…)\]}]+$/u;

/** Return the links of messages in order, without duplicates. */
export function listLinks(
  messages: readonly { seq: number; ts: number; body: string; deleted?: boolean }[],
): MessageLink[] {
  const links = new Map<string, MessageLink>();
  for (const { seq, ts, body, deleted } of messages) {
    if (deleted === true) continue;
    for (const [text] of body.matchAll(URL_LIKE)) {
      const url = parseUrl(trimPunctuation(text));
      if (url !== null && !links.has(url.href)) {
        links.set(url.href, { url: url.href, host: url.host, seq, ts });
      }
    }
  }
  return [...links.values()];
}

/** Remove trailing punctuation; a closing bracket stays if the URL has its opening bracket. */
function trimPunctuation(text: string): string {
  const end = TRAILING.exec(text);
  if (end === null) return text;
  const rest = text.slice(0, end.index);
  const unclosed = (rest.match(/[([{]/gu) ?? []).length - (rest.match(/[)\]}]/gu) ?? []).length;
  const closing = /^[)\]}]+/u.exec(end[0])?.[0] ?? "";
  return unclosed > 0 ? rest + closing.slice(0, unclosed) : rest;
}

function parseUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}
