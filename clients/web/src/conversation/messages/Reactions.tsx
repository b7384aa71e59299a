// The reactions to a message, as buttons that add or remove the user's own.

import { memo } from "react";
import type { Message } from "tierchat";
import { useText } from "../../i18n";
import { formatList } from "../../i18n/format";
import { useConversation } from "../model/context";
import styles from "./MessageRow.module.css";

const NAMES_MAX = 6;

export const Reactions = memo(function Reactions({ message }: { message: Message }) {
  const words = useText().conversation;
  const model = useConversation();
  const reactions = Object.entries(message.reactions ?? {});
  if (reactions.length === 0) return null;
  const users = new Map<string, string[]>();
  for (const [user, emoji] of reactions) users.set(emoji, [...(users.get(emoji) ?? []), user]);
  return (
    <div className={styles["reactions"]}>
      {[...users].map(([emoji, names]) => {
        const shown = names.map((name) => (name === model.me ? words.you : name));
        const list = formatList(
          shown.length > NAMES_MAX
            ? [...shown.slice(0, NAMES_MAX), `+${shown.length - NAMES_MAX}`]
            : shown,
        );
        return (
          <button
            key={emoji}
            type="button"
            tabIndex={-1}
            aria-pressed={names.includes(model.me)}
            aria-label={words.reactedWith(list, emoji)}
            data-tooltip={list}
            onClick={() => model.react(message, emoji)}
          >
            {emoji} <span>{names.length}</span>
          </button>
        );
      })}
    </div>
  );
});
