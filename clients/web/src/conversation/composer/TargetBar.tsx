// A bar above the text with the message to reply to or to edit.

import { Pencil, Reply, X } from "lucide-react";
import { IconButton } from "../../design";
import { usePerson } from "../../directory/directory";
import { useText } from "../../i18n";
import { getSummary } from "../messages/ReplyQuote";
import { useConversation } from "../model/context";
import type { ComposerTarget } from "../model/conversation_model";
import { isUnsent } from "../model/unsent";
import styles from "./Composer.module.css";

export function TargetBar({ target }: { target: ComposerTarget }) {
  const text = useText();
  const words = text.conversation;
  const model = useConversation();
  const { kind, message } = target;
  const person = usePerson(message.sender);
  const isReply = kind === "reply";
  const name = message.sender === model.me ? words.you : person.name;
  const Icon = isReply ? Reply : Pencil;
  return (
    <div className={styles["target"]}>
      <Icon size={18} aria-hidden />
      <button
        type="button"
        className={styles["about"]}
        disabled={isUnsent(message)}
        onClick={() => void model.jumpTo(message.seq)}
      >
        <strong>{isReply ? words.replyingTo(name) : words.editing}</strong>
        <span dir="auto">{getSummary(message, text)}</span>
      </button>
      <IconButton
        icon={X}
        size="s"
        label={isReply ? words.cancelReply : words.cancelEdit}
        onClick={() => model.target.set(null)}
      />
    </div>
  );
}
