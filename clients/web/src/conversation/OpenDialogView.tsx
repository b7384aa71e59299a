// The open dialog of a conversation. The code is loaded when a dialog is first opened.

import { useChat } from "tierchat/react";
import { MemoryDialog } from "../companions/MemoryDialog";
import { EndDialog, RenewDialog } from "../companions/session_dialogs";
import { Viewer } from "../content/Viewer";
import { useChatTitle } from "../directory/chat_title";
import { DateDialog } from "./DateDialog";
import { DeleteDialog } from "./DeleteDialog";
import { ForwardDialog } from "./ForwardDialog";
import { useConversation } from "./model/context";
import type { OpenDialog } from "./model/conversation_model";
import { ReportDialog } from "./ReportDialog";

interface OpenDialogViewProps {
  dialog: OpenDialog;
  onClose: () => void;
}

export default function OpenDialogView({ dialog, onClose }: OpenDialogViewProps) {
  const model = useConversation();
  switch (dialog.kind) {
    case "delete":
      return <DeleteDialog messages={dialog.messages} onClose={onClose} />;
    case "forward":
      return <ForwardDialog messages={dialog.messages} onClose={onClose} />;
    case "report":
      return <ReportDialog message={dialog.message} onClose={onClose} />;
    case "date":
      return <DateDialog onClose={onClose} />;
    case "viewer":
      return (
        <Viewer
          items={dialog.items}
          start={dialog.start}
          onMessage={({ seq }) => {
            onClose();
            void model.jumpTo(seq);
          }}
          onClose={onClose}
        />
      );
    default:
      return <SessionDialog kind={dialog.kind} onClose={onClose} />;
  }
}

interface SessionDialogProps {
  kind: "memory" | "endSession" | "renewSession";
  onClose: () => void;
}

/** A dialog about the session with an AI companion. */
function SessionDialog({ kind, onClose }: SessionDialogProps) {
  const { chat, companion } = useConversation();
  const name = useChatTitle(useChat(chat.id));
  if (companion === null) return null;
  switch (kind) {
    case "memory":
      return <MemoryDialog companion={companion} name={name} onClose={onClose} />;
    case "endSession":
      return <EndDialog companion={companion} chat={chat.id} onClose={onClose} />;
    case "renewSession":
      return <RenewDialog companion={companion} onClose={onClose} />;
  }
}
