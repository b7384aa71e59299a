// A dialog that selects the chats to which messages are forwarded.

import { useState } from "react";
import type { Message } from "tierchat";
import { ChatChooser } from "../chats/ChatChooser";
import { Button, Dialog, showToast } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { formatList } from "../i18n/format";
import { useConversation } from "./model/context";
import { forwardMessages, TARGETS_MAX } from "./model/forward";

interface ForwardDialogProps {
  messages: readonly Message[];
  onClose: () => void;
}

export function ForwardDialog({ messages, onClose }: ForwardDialogProps) {
  const words = useText();
  const text = words.conversation;
  const model = useConversation();
  const [selected, setSelected] = useState<ReadonlyMap<string, string>>(new Map());
  const [isBusy, setBusy] = useState(false);
  const toggle = (chat: string, name: string): void => {
    const next = new Map(selected);
    if (!next.delete(chat)) next.set(chat, name);
    if (next.size > TARGETS_MAX) showToast(text.forwardTooMany(TARGETS_MAX), { kind: "error" });
    else setSelected(next);
  };
  const forward = async (): Promise<void> => {
    setBusy(true);
    try {
      const targets = [...selected.keys()].map((chat) => model.client.chat(chat));
      await forwardMessages(model.client, targets, messages);
      showToast(text.forwarded(formatList([...selected.values()])));
      model.selection.set(null);
      if (selected.has(model.chat.id)) model.showEnd();
      onClose();
    } catch (error) {
      showToast(`${text.forwardFailed} ${getErrorText(error)}`, { kind: "error" });
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={text.forwardTitle}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{words.common.cancel}</Button>
          <Button
            variant="primary"
            isBusy={isBusy}
            disabled={selected.size === 0}
            onClick={() => void forward()}
          >
            {text.forward}
          </Button>
        </>
      }
    >
      <ChatChooser
        selected={selected}
        isDisabled={isBusy}
        onChoose={({ id }, name) => toggle(id, name)}
      />
    </Dialog>
  );
}
