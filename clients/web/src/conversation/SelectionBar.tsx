// Actions for the selected messages. The bar replaces the composer.

import { Copy, Forward, Trash2, X } from "lucide-react";
import { IconButton } from "../design";
import { useLayer } from "../design/use_layer";
import { useText } from "../i18n";
import styles from "./ConversationHeader.module.css";
import { useConversation } from "./model/context";

export function SelectionBar({ count }: { count: number }) {
  const words = useText().conversation;
  const model = useConversation();
  const isNone = count === 0;
  const openDialog = (kind: "forward" | "delete"): void => {
    model.dialog.set({ kind, messages: model.listSelectedMessages() });
  };
  useLayer(() => model.selection.set(null));
  return (
    <div className={styles["selection"]} role="toolbar" aria-label={words.selected(count)}>
      <IconButton
        icon={X}
        label={words.cancelSelection}
        onClick={() => model.selection.set(null)}
      />
      <span role="status">{words.selected(count)}</span>
      <IconButton
        icon={Copy}
        label={words.copy}
        disabled={isNone}
        onClick={() => {
          void model.copy(model.listSelectedMessages());
          model.selection.set(null);
        }}
      />
      <IconButton
        icon={Forward}
        label={words.forward}
        disabled={isNone}
        onClick={() => openDialog("forward")}
      />
      <IconButton
        icon={Trash2}
        label={words.deleteMessage}
        disabled={isNone}
        onClick={() => openDialog("delete")}
      />
    </div>
  );
}
