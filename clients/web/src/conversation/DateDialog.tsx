// The dialogs of a conversation.

import { useId, useState } from "react";
import type { Message } from "tierchat";
import { Button, Dialog, showToast, TextArea, TextField } from "../design";
import { useText } from "../i18n";
import { useConversation } from "./model/context";

const SECOND_MS = 1_000;

interface MessagesDialogProps {
  messages: readonly Message[];
  onClose: () => void;
}

/** Deletes messages, for everyone or only for the user. */
export function DeleteDialog({ messages, onClose }: MessagesDialogProps) {
  const words = useText();
  const text = words.conversation;
  const model = useConversation();
  const { chat, me, group } = model;
  const canDeleteForAll = messages.every(({ sender }) => sender === me || group.isManager);
  const remove = (scope: "all" | "me"): void => {
    for (const { seq } of messages) chat.delete(seq, scope);
    model.selection.set(null);
    onClose();
  };
  return (
    <Dialog
      title={text.deleteTitle(messages.length)}
      size="m"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{words.common.cancel}</Button>
          <Button variant={canDeleteForAll ? "secondary" : "danger"} onClick={() => remove("me")}>
            {text.deleteForMe}
          </Button>
          {canDeleteForAll && (
            <Button variant="danger" onClick={() => remove("all")}>
              {text.deleteForEveryone}
            </Button>
          )}
        </>
      }
    >
      <p>{text.deleteHint}</p>
    </Dialog>
  );
}

/** Reports a message to the admins. */
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

/** Jumps to the first message on or after a day. */
export function DateDialog({ onClose }: { onClose: () => void }) {
  const words = useText();
  const text = words.conversation;
  const model = useConversation();
  const form = useId();
  const [date, setDate] = useState("");
  const [isBusy, setBusy] = useState(false);
  const jump = async (): Promise<void> => {
    setBusy(true);
    const dayMs = new Date(`${date}T00:00:00`).getTime();
    const isDone = await model.attempt(async () => {
      const isFound = await model.window.jumpToTime(dayMs);
      if (!isFound) showToast(text.noMessagesThen);
    });
    setBusy(false);
    if (isDone) onClose();
  };
  return (
    <Dialog
      title={text.jumpToDate}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{words.common.cancel}</Button>
          <Button
            type="submit"
            form={form}
            variant="primary"
            isBusy={isBusy}
            disabled={date === ""}
          >
            {text.jump}
          </Button>
        </>
      }
    >
      <form
        id={form}
        onSubmit={(event) => {
          event.preventDefault();
          if (date !== "") void jump();
        }}
      >
        <TextField
          label={text.date}
          type="date"
          value={date}
          max={new Date(Date.now() + SECOND_MS).toLocaleDateString("sv")}
          required
          autoFocus
          onChange={(event) => setDate(event.target.value)}
        />
      </form>
    </Dialog>
  );
}
