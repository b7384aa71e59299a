// A picker for all emoji by category, with a search. The emoji data is part of the build.

import { EmojiPicker as Picker } from "frimousse";
import { useLanguage, useText } from "../i18n";
import styles from "./EmojiPopover.module.css";

interface EmojiPickerProps {
  onPick: (emoji: string) => void;
}

export default function EmojiPicker({ onPick }: EmojiPickerProps) {
  const words = useText().conversation;
  const language = useLanguage();
  return (
    <Picker.Root
      className={styles["picker"]}
      columns={8}
      locale={language}
      emojibaseUrl="/data/emoji"
      onEmojiSelect={({ emoji }) => onPick(emoji)}
    >
      <Picker.Search
        className={styles["search"]}
        placeholder={words.emojiSearch}
        aria-label={words.emojiSearch}
        autoFocus
      />
      <Picker.Viewport className={styles["viewport"]}>
        <Picker.Loading className={styles["hint"]}>…</Picker.Loading>
        <Picker.Empty className={styles["hint"]}>{words.emojiNone}</Picker.Empty>
        <Picker.List
          components={{
            CategoryHeader: ({ category, ...props }) => (
              <div {...props} className={styles["category"]}>
                {category.label}
              </div>
            ),
            Row: ({ children, ...props }) => (
              <div {...props} className={styles["emojiRow"]}>
                {children}
              </div>
            ),
            Emoji: ({ emoji, ...props }) => (
              <button
                {...props}
                type="button"
                className={styles["emoji"]}
                data-active={emoji.isActive || undefined}
              >
                {emoji.emoji}
              </button>
            ),
          }}
        />
      </Picker.Viewport>
    </Picker.Root>
  );
}
