// The dialog that reports a message to the admins.

import { useState } from "react";
import type { Message } from "tierchat";
import { Button, Dialog, showToast, TextArea } from "../design";
import { useText } from "../i18n";
import { useConversation } from "./model/context";

export function ReportDialog({ message, onClose }: { message: Message; onClose: () => void }) {
  const words = useText();
  const text = words.conversation;
  const model = useConversation();
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const report = async (): Promise<void> => {
    setBusy(true);
    if (await model.attempt(() => model.chat.report(message.seq, reason.trim()))) {
      showToast(text.reported);
      onClose();
    }
    setBusy(false);
  };
  return (
    <Dialog
      title={text.reportTitle}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{words.common.cancel}</Button>
          <Button variant="danger" isBusy={isBusy} onClick={() => void report()}>
            {text.report}
          </Button>
        </>
      }
    >
      <TextArea
        label={text.reportReason}
        hint={text.reportHint}
        value={reason}
        maxLength={500}
        onChange={(event) => setReason(event.target.value)}
      />
    </Dialog>
  );
}
