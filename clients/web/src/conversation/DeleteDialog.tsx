// The dialog that deletes messages, for everyone or only for the user.

import type { Message } from "tierchat";
import { Button, Dialog } from "../design";
import { useText } from "../i18n";
import { useConversation } from "./model/context";

interface MessagesDialogProps {
  messages: readonly Message[];
  onClose: () => void;
}

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
