// What the user can do with a chat for themselves: clear its history, or delete it.

import { Eraser } from "lucide-react";
import { useState } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { Button, ConfirmDialog, showToast } from "../design";
import { useText } from "../i18n";
import styles from "./ChatDetails.module.css";

/** The end of the panel. */
export function ChatActions({ info }: { info: Http.ChatInfo }) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const [isOpen, setOpen] = useState(false);
  return (
    <footer className={styles["footer"]}>
      {info.joining === "open" && (
        <Button
          variant="quiet"
          onClick={() =>
            void attempt(async () => {
              await navigator.clipboard.writeText(new URL(`join/${info.chat}`, document.baseURI).href);
              showToast(text.copied);
            })
          }
        >
          {text.copyLink}
        </Button>
      )}
      <Button variant="quiet" icon={Eraser} onClick={() => setOpen(true)}>
        {text.clear}
      </Button>
      {isOpen && (
        <ConfirmDialog
          title={text.clearTitle}
          message={text.clearText}
          action={text.clear}
          isDangerous
          onConfirm={() =>
            attempt(async () => {
              const body = { cleared_upto: client.chat(info.chat).top };
              const path = `/v1/chats/${encodeURIComponent(info.chat)}/preferences`;
              await client.http.request("PATCH", path, body);
              showToast(text.cleared);
            })
          }
          onClose={() => setOpen(false)}
        />
      )}
    </footer>
  );
}
