// The open dialog of a conversation; its code is loaded when one is first opened.

import { Viewer } from "../content/Viewer";
import type { OpenDialog } from "./model/conversation_model";
import { DateDialog, DeleteDialog, ReportDialog } from "./dialogs";
import { ForwardDialog } from "./ForwardDialog";

interface OpenDialogViewProps {
  dialog: OpenDialog;
  onClose: () => void;
}

export default function OpenDialogView({ dialog, onClose }: OpenDialogViewProps) {
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
      return <Viewer items={dialog.items} start={dialog.start} onClose={onClose} />;
  }
}
