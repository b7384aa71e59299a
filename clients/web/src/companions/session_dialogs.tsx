// Dialogs that replace or end a session with a companion.

import { useState } from "react";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { Button, ConfirmDialog, Dialog, Switch, showToast } from "../design";
import { useText } from "../i18n";
import { buildPath, navigate } from "../page/router";

/** Asks before a new session replaces the active one. */
export function RenewDialog({ companion, onClose }: { companion: string; onClose: () => void }) {
  const text = useText().companions;
  const client = useClient();
  const attempt = useAttempt();
  const renew = (): Promise<boolean> =>
    attempt(async () => {
      const { id } = await client.renewSession(companion);
      navigate(buildPath("/chats/:chat", { chat: id }));
    });
  return (
    <ConfirmDialog
      title={text.newSessionTitle}
      message={text.newSessionText}
      action={text.newSession}
      onConfirm={renew}
      onClose={onClose}
    />
  );
}

interface EndDialogProps {
  companion: string;
  chat: string;
  onEnded?: () => void;
  onClose: () => void;
}

/** Asks before a session ends, and whether its memories are deleted. */
export function EndDialog({ companion, chat, onEnded, onClose }: EndDialogProps) {
  const { companions: text, common } = useText();
  const client = useClient();
  const attempt = useAttempt();
  const [isForgotten, setForgotten] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const end = async (): Promise<void> => {
    setBusy(true);
    const isDone = await attempt(() =>
      client.http.call("delete_session", { companion, chat, forget: isForgotten }),
    );
    setBusy(false);
    if (!isDone) return;
    showToast(text.ended);
    onEnded?.();
    onClose();
  };
  return (
    <Dialog
      title={text.endTitle}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{common.cancel}</Button>
          <Button variant="danger" isBusy={isBusy} onClick={() => void end()}>
            {text.end}
          </Button>
        </>
      }
    >
      <div className="stack">
        <p>{text.endText}</p>
        <Switch label={text.endForget} isOn={isForgotten} onChange={setForgotten} />
      </div>
    </Dialog>
  );
}
