// The dialog that jumps to the first message on or after a day.

import { useId, useState } from "react";
import { Button, Dialog, showToast, TextField } from "../design";
import { useText } from "../i18n";
import { useConversation } from "./model/context";

const SECOND_MS = 1_000;

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
