// The notice below a refused message: the reason, and buttons to retry or delete it.

import { useText } from "../../i18n";
import { getErrorText } from "../../i18n/errors";
import { useConversation } from "../model/context";
import type { Row } from "../model/rows";
import styles from "./MessageRow.module.css";

export function FailedNotice({ row: { unsent, message } }: { row: Row }) {
  const words = useText().conversation;
  const model = useConversation();
  if (unsent?.error == null) return null;
  return (
    <div className={styles["failed"]} role="alert">
      <span>{words.failedBecause(getErrorText(unsent.error))}</span>
      <button type="button" onClick={() => model.retry(unsent.ref)}>
        {words.retry}
      </button>
      <button type="button" onClick={() => model.target.set({ kind: "edit", message })}>
        {words.edit}
      </button>
      <button type="button" onClick={() => model.discard(unsent.ref)}>
        {words.discard}
      </button>
    </div>
  );
}
