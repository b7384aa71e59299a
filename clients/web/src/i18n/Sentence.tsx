// A text of the catalog that contains names. Each name is isolated with `<bdi>`, because its
// writing direction may differ from that of the text.

import { Fragment, type ReactNode } from "react";
import { useText } from ".";

const MARKS = ["\uE000", "\uE001", "\uE002"];
const ANY_MARK = /([\uE000-\uE002])/u;

interface SentenceProps {
  /** Returns the text for up to three names, in order. */
  of: (...names: [string, string, string]) => string;
  /** Names, or components that show them. "You" and "" are passed to `of` for the grammar. */
  names: readonly ReactNode[];
}

/** Shows a sentence. */
export function Sentence({ of, names }: SentenceProps) {
  const { you } = useText().common;
  const given = (index: number): string => {
    const name = names[index] ?? "";
    const isText = typeof name === "string" && (name === "" || name === you);
    return isText ? name : (MARKS[index] ?? "");
  };
  return of(given(0), given(1), given(2))
    .split(ANY_MARK)
    .map((part, index) => {
      const name = MARKS.indexOf(part);
      if (name < 0) return <Fragment key={index}>{part}</Fragment>;
      return <bdi key={index}>{names[name]}</bdi>;
    });
}
