// Buttons beside the message under the pointer.

import { Ellipsis, Reply, SmilePlus } from "lucide-react";
import { IconButton } from "../../design";
import { useText } from "../../i18n";
import { useConversation } from "../model/context";
import type { Row } from "../model/rows";
import styles from "./MessageRow.module.css";

/** The position at which an overlay of a message opens. */
export type OverlayAnchor = HTMLElement | { x: number; y: number };

/** Opens the menu of a message, or the emoji picker for a reaction. */
export type OpenOverlay = (kind: "menu" | "emoji", row: Row, anchor: OverlayAnchor) => void;

interface MessageToolsProps {
  row: Row;
  onOverlay: OpenOverlay;
}

export function MessageTools({ row, onOverlay }: MessageToolsProps) {
  const words = useText().conversation;
  const model = useConversation();
  return (
    <div className={styles["toolsArea"]}>
      <div className={styles["tools"]}>
        <IconButton
          icon={SmilePlus}
          label={words.react}
          size="s"
          className={styles["optional"]}
          tabIndex={-1}
          aria-haspopup="dialog"
          onClick={(event) => onOverlay("emoji", row, event.currentTarget)}
        />
        <IconButton
          icon={Reply}
          label={words.reply}
          size="s"
          className={styles["optional"]}
          tabIndex={-1}
          onClick={() => model.target.set({ kind: "reply", message: row.message })}
        />
        <IconButton
          icon={Ellipsis}
          label={words.messageActions}
          size="s"
          tabIndex={-1}
          aria-haspopup="menu"
          onClick={(event) => onOverlay("menu", row, event.currentTarget)}
        />
      </div>
    </div>
  );
}
