// A refused message: the reason, and what the user can do.

import { errorText } from "../../app/errors";
import { useText } from "../../i18n";
import { useConversation } from "../model/context";
import styles from "./MessageRow.module.css";
import type { Unsent } from "../model/rows";

export function FailedNotice({ unsent }: { unsent: Unsent }) {
  const words = useText().conversation;
  const model = useConversation();
  return (
    <div className={styles["failed"]} role="alert">
      <span>{words.failedBecause(errorText(unsent.error))}</span>
      <button type="button" onClick={() => model.retry(unsent.ref)}>
        {words.retry}
      </button>
      <button type="button" onClick={() => model.failed.take(unsent.ref)}>
        {words.discard}
      </button>
    </div>
  );
}
