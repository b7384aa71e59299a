// The text of a message: formatted; larger if it is only emoji; shortened if it is long.

import { type ReactNode, useState } from "react";
import { useText } from "../i18n";
import styles from "./content.module.css";
import { MarkdownText } from "./MarkdownText";
import { countOnlyEmoji, findBeginning, getDirection } from "./text_shape";

interface MessageTextProps {
  text: string;
  /** Content after the last word. */
  tail?: ReactNode;
}

export function MessageText({ text, tail }: MessageTextProps) {
  const words = useText().content;
  const [isExpanded, setExpanded] = useState(false);
  if (text === "") return <>{tail}</>;
  const emoji = countOnlyEmoji(text);
  if (emoji > 0) {
    return (
      <div className={styles["emoji"]} data-count={Math.min(emoji, 4)}>
        {text}
        {tail}
      </div>
    );
  }
  const beginning = findBeginning(text);
  const shown = beginning === null || isExpanded ? text : `${beginning} …`;
  return (
    <div className={styles["text"]} dir={getDirection(text)}>
      <MarkdownText text={shown} tail={beginning === null ? tail : null} />
      {beginning !== null && (
        <button
          type="button"
          className={styles["expand"]}
          aria-expanded={isExpanded}
          onClick={() => setExpanded(!isExpanded)}
        >
          {isExpanded ? words.showLess : words.showMore}
        </button>
      )}
      {beginning !== null && tail}
    </div>
  );
}
