// The quoted message of a reply. A click jumps to the quoted message.

import { useEffect, useState } from "react";
import type { Message } from "tierchat";
import { listFileNames } from "../../content/file_kinds";
import { getPlainText } from "../../content/markdown";
import { PersonName } from "../../directory/PersonAvatar";
import { type Catalog, useText } from "../../i18n";
import { useConversation } from "../model/context";
import styles from "./MessageRow.module.css";

/** Shows message `seq`; loads it if it is not in the window. */
export function ReplyQuote({ seq }: { seq: number }) {
  const text = useText();
  const words = text.conversation;
  const model = useConversation();
  const [loaded, setLoaded] = useState<Message | null>(null);
  const message = model.find(seq) ?? loaded;
  useEffect(() => {
    if (model.find(seq) !== null) return undefined;
    let isCurrent = true;
    void model.loadQuoted(seq).then((quoted) => isCurrent && setLoaded(quoted));
    return () => {
      isCurrent = false;
    };
  }, [model, seq]);
  return (
    <button
      type="button"
      className={styles["quote"]}
      tabIndex={-1}
      data-tooltip={words.goToOriginal}
      onClick={() => void model.jumpTo(seq)}
    >
      <strong>
        {message === null ? (
          words.originalMessage
        ) : message.sender === model.me ? (
          words.you
        ) : (
          <PersonName user={message.sender} />
        )}
      </strong>
      <span dir="auto">{message === null ? "…" : getSummary(message, text)}</span>
    </button>
  );
}

/** Return a message in one line. */
export function getSummary(message: Message, { content, conversation }: Catalog): string {
  if (message.deleted === true) return conversation.deleted;
  return getPlainText(message.body) || listFileNames(message, content.voiceMessage);
}
