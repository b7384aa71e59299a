// Search queries: words, and qualifiers such as `from:alice`, shown as chips. Pure functions.

/** Qualifiers of the server (docs/search.md). */
export const QUALIFIERS = ["from", "in", "has", "after", "before"] as const;

/** The name of a qualifier. */
export type Qualifier = (typeof QUALIFIERS)[number];

/** A qualifier with its value. */
export interface Chip {
  name: Qualifier;
  value: string;
}

/** A query in parts. */
export interface Query {
  chips: readonly Chip[];
  text: string;
}

/** Minimum length of the text; not required with qualifiers. */
export const TEXT_MIN = 2;
const CHIP = /^(from|in|has|after|before):(\S+)$/i;
const ONE_VALUE: ReadonlySet<Qualifier> = new Set(["from", "in", "has", "after", "before"]);

/** Split a text at spaces outside quotes. */
function words(text: string): string[] {
  return text.match(/"[^"]*"?|\S+/g) ?? [];
}

/** Split a query into chips and words. */
export function parseQuery(query: string): Query {
  const chips: Chip[] = [];
  const others: string[] = [];
  for (const word of words(query)) {
    const [, name, value] = CHIP.exec(word) ?? [];
    if (name === undefined || value === undefined) others.push(word);
    else chips.push({ name: name.toLowerCase() as Qualifier, value });
  }
  const hasSpace = /\s$/.test(query) && others.length > 0 && words(query).at(-1) === others.at(-1);
  return { chips: chips.reduce(withChip, []), text: others.join(" ") + (hasSpace ? " " : "") };
}

/** Convert complete qualifiers of a text, which a space follows, to chips. */
export function extractChips(query: Query): Query {
  const { chips, text } = parseQuery(query.text);
  const last = words(query.text).at(-1) ?? "";
  if (CHIP.test(last) && !/\s$/.test(query.text)) {
    const rest = parseQuery(query.text.slice(0, query.text.lastIndexOf(last)));
    if (rest.chips.length === 0) return query;
    return { chips: rest.chips.reduce(withChip, query.chips), text: `${rest.text} ${last}`.trim() };
  }
  return chips.length === 0 ? query : { chips: chips.reduce(withChip, query.chips), text };
}

/** Add a chip; it replaces a chip with the same name. */
export function withChip(chips: readonly Chip[], chip: Chip): readonly Chip[] {
  const kept = ONE_VALUE.has(chip.name) ? chips.filter(({ name }) => name !== chip.name) : chips;
  return [...kept, chip];
}

/** Return the query as text, for the server and the URL; close an open phrase. */
export function formatQuery({ chips, text }: Query): string {
  const parts = chips.map(({ name, value }) => `${name}:${value}`);
  const trimmed = text.trimStart();
  const closed = trimmed.split('"').length % 2 === 0 ? `${trimmed}"` : trimmed;
  return [...parts, closed].filter((part) => part !== "").join(" ");
}

/** Return whether a query is long enough. */
export function isSearchable({ chips, text }: Query): boolean {
  const plain = text.replace(/"/g, "").trim();
  return plain.length >= TEXT_MIN || (plain === "" && chips.length > 0);
}
