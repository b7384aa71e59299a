// A text of the catalog that contains names. Each name is isolated with `<bdi>`, because its
// writing direction may differ from that of the text.

import { Fragment, type ReactNode } from "react";
import { useText } from ".";

const PLACEHOLDERS = ["\uE000", "\uE001", "\uE002"];
const ANY_PLACEHOLDER = /([\uE000-\uE002])/u;

interface SentenceProps {
  /** Returns the text for up to three names, in order. */
  text: (...names: [string, string, string]) => string;
  /** Names, or components that show them. "You" and "" are passed to `text` for the grammar. */
  names: readonly ReactNode[];
}

/** Shows a sentence. */
export function Sentence({ text, names }: SentenceProps) {
  const { you } = useText().common;
  const getPart = (index: number): string => {
    const name = names[index] ?? "";
    const isText = typeof name === "string" && (name === "" || name === you);
    return isText ? name : (PLACEHOLDERS[index] ?? "");
  };
  return text(getPart(0), getPart(1), getPart(2))
    .split(ANY_PLACEHOLDER)
    .map((part, index) => {
      const name = PLACEHOLDERS.indexOf(part);
      if (name < 0) return <Fragment key={index}>{part}</Fragment>;
      return <bdi key={index}>{names[name]}</bdi>;
    });
}
