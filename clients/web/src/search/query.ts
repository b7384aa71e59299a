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

/** A query: its chips and its words. */
export interface Query {
  chips: readonly Chip[];
  text: string;
}

/** Minimum length of the text; not required with qualifiers. */
export const TEXT_MIN = 2;
const CHIP = /^(from|in|has|after|before):(\S+)$/i;
const SINGLE_VALUE: ReadonlySet<Qualifier> = new Set(["from", "in", "has", "after", "before"]);

/** Split a text at spaces outside quotes. */
function splitWords(text: string): string[] {
  return text.match(/"[^"]*"?|\S+/g) ?? [];
}

/** Split a query into chips and words. */
export function parseQuery(query: string): Query {
  const chips: Chip[] = [];
  const others: string[] = [];
  for (const word of splitWords(query)) {
    const [, name, value] = CHIP.exec(word) ?? [];
    if (name === undefined || value === undefined) others.push(word);
    else chips.push({ name: name.toLowerCase() as Qualifier, value });
  }
  const isLastWord = others.length > 0 && splitWords(query).at(-1) === others.at(-1);
  const hasSpace = isLastWord && /\s$/.test(query);
  return { chips: chips.reduce(addChip, []), text: others.join(" ") + (hasSpace ? " " : "") };
}

/** Convert the complete qualifiers of a text to chips. A space completes a qualifier. */
export function extractChips(query: Query): Query {
  const { chips, text } = parseQuery(query.text);
  const last = splitWords(query.text).at(-1) ?? "";
  if (CHIP.test(last) && !/\s$/.test(query.text)) {
    const rest = parseQuery(query.text.slice(0, query.text.lastIndexOf(last)));
    if (rest.chips.length === 0) return query;
    return { chips: rest.chips.reduce(addChip, query.chips), text: `${rest.text} ${last}`.trim() };
  }
  return chips.length === 0 ? query : { chips: chips.reduce(addChip, query.chips), text };
}

/** Add a chip; it replaces a chip with the same name. */
export function addChip(chips: readonly Chip[], chip: Chip): readonly Chip[] {
  const isSingle = SINGLE_VALUE.has(chip.name);
  const remaining = isSingle ? chips.filter(({ name }) => name !== chip.name) : chips;
  return [...remaining, chip];
}

/** Return the query as text, for the server and the URL. An open phrase is closed. */
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
