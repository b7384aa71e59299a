// Actions that affect only the user: clear the history of a chat, or delete the chat.

import { Eraser, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { Button, ConfirmDialog, showToast } from "../design";
import { useText } from "../i18n";
import { navigate } from "../page/router";
import styles from "./ChatDetails.module.css";

/** The buttons at the end of the panel. */
export function ChatActions({ info }: { info: Http.ChatInfo }) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const [open, setOpen] = useState<"clear" | "delete" | null>(null);
  const { chat } = info;
  const close = (): void => setOpen(null);
  const clearHistory = (isArchived?: boolean): Promise<unknown> => {
    const clearedUpto = client.chat(chat).top;
    return client.preferences.change(chat, { clearedUpto, ...(isArchived && { isArchived }) });
  };
  const clear = (): Promise<boolean> =>
    attempt(async () => {
      await clearHistory();
      showToast(text.cleared);
    });
  // The deleted chat is archived; a new message unarchives it.
  const remove = (): Promise<boolean> =>
    attempt(async () => {
      await clearHistory(true);
      navigate("/chats", { replace: true });
    });
  return (
    <footer className={styles["footer"]}>
      <Button variant="quiet" icon={Eraser} onClick={() => setOpen("clear")}>
        {text.clear}
      </Button>
      {info.kind === "direct" && (
        <Button variant="quiet" icon={Trash2} onClick={() => setOpen("delete")}>
          {text.deleteChat}
        </Button>
      )}
      {open === "clear" && (
        <ConfirmDialog
          title={text.clearTitle}
          message={text.clearText}
          action={text.clear}
          isDangerous
          onConfirm={clear}
          onClose={close}
        />
      )}
      {open === "delete" && (
        <ConfirmDialog
          title={text.deleteTitle}
          message={text.deleteText}
          action={text.deleteChat}
          isDangerous
          onConfirm={remove}
          onClose={close}
        />
      )}
    </footer>
  );
}
