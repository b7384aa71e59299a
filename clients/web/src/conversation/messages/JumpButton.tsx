// The button that jumps to the newest message, with the number of unread messages.

import { ChevronDown } from "lucide-react";
import { useObservable } from "../../data/observable";
import { Badge, IconButton } from "../../design";
import { useText } from "../../i18n";
import { useConversation } from "../model/context";
import styles from "./MessageList.module.css";

export function JumpButton({ onJump }: { onJump: () => void }) {
  const words = useText().conversation;
  const unread = useObservable(useConversation().unread);
  return (
    <div className={styles["jump"]}>
      {unread > 0 && (
        <span className={styles["count"]}>
          <Badge count={unread} label={words.unreadBelow(unread)} />
        </span>
      )}
      <IconButton icon={ChevronDown} label={words.newest} onClick={onJump} />
    </div>
  );
}
