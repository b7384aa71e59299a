// Truncation of text between graphemes, the characters that a reader sees.

/** Return the beginning of a text: at most `unitsMax` UTF-16 units, and only whole graphemes. */
export function truncate(text: string, unitsMax: number): string {
  if (text.length <= unitsMax) return text;
  const cut = new Intl.Segmenter().segment(text).containing(unitsMax);
  return text.slice(0, cut?.index ?? unitsMax);
}
