// Completion of @mentions in the composer. Pure functions.

const QUERY_MAX = 64;
const BEFORE_CARET = /(?:^|[^\p{L}\p{N}_@/.])@([A-Za-z0-9_-]{0,64})$/u;

/** An incomplete mention: the text from the "@" at `start` to the caret. */
export interface MentionQuery {
  start: number;
  query: string;
}

/** A member that can be mentioned. */
export interface Candidate {
  user: string;
  name: string;
}

/** Return the mention at the caret, or null. */
export function findMention(text: string, caret: number): MentionQuery | null {
  const before = text.slice(Math.max(0, caret - QUERY_MAX - 2), caret);
  const match = BEFORE_CARET.exec(before);
  if (match === null) return null;
  const query = match[1] as string;
  return { start: caret - query.length - 1, query };
}

/** Return the best candidates; candidates whose id or name starts with the query come first. */
export function rankCandidates(
  candidates: readonly Candidate[],
  query: string,
  countMax = 8,
): Candidate[] {
  const prefix = query.toLowerCase();
  const rank = ({ user, name }: Candidate): number => {
    const [id, words] = [user.toLowerCase(), name.toLowerCase()];
    if (id.startsWith(prefix) || words.startsWith(prefix)) return 0;
    if (words.includes(` ${prefix}`)) return 1;
    return id.includes(prefix) ? 2 : 3;
  };
  return candidates
    .map((candidate) => ({ candidate, rank: rank(candidate) }))
    .filter((ranked) => ranked.rank < 3)
    .sort((a, b) => a.rank - b.rank || a.candidate.name.localeCompare(b.candidate.name))
    .slice(0, countMax)
    .map(({ candidate }) => candidate);
}

/** Return the text with the mention completed, and the new caret. */
export function completeMention(
  text: string,
  caret: number,
  { start }: MentionQuery,
  user: string,
): { text: string; caret: number } {
  const after = text.slice(caret);
  const mention = `@${user}${/^\s/.test(after) ? "" : " "}`;
  const end = start + mention.length + (/^\s/.test(after) ? 1 : 0);
  return { text: text.slice(0, start) + mention + after, caret: end };
}
