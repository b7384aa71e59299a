// A picker for all emoji by category, with a search. The emoji data is part of the build.

import { EmojiPicker as Picker } from "frimousse";
import { type ComponentProps, type RefObject, useEffect, useRef } from "react";
import { useLanguage, useText } from "../i18n";
import styles from "./EmojiPopover.module.css";

interface EmojiPickerProps {
  /** What the user has typed so far. */
  typed: string;
  onPick: (emoji: string) => void;
}

export default function EmojiPicker({ typed, onPick }: EmojiPickerProps) {
  const words = useText().conversation;
  const language = useLanguage();
  const search = useRef<HTMLInputElement>(null);
  const hasKeyboard = useRef(false); // the last event: the active emoji is scrolled into view
  // When the popover is shown; hidden fields take no focus.
  useEffect(() => {
    const field = search.current;
    field?.focus();
    field?.setSelectionRange(field.value.length, field.value.length);
  }, []);
  return (
    <Picker.Root
      className={styles["picker"]}
      columns={8}
      locale={language}
      emojibaseUrl="/data/emoji"
      onEmojiSelect={({ emoji }) => onPick(emoji)}
      onKeyDown={() => {
        hasKeyboard.current = true;
      }}
      onPointerMove={() => {
        hasKeyboard.current = false;
      }}
    >
      <Picker.Search
        ref={search}
        defaultValue={typed}
        className={styles["search"]}
        placeholder={words.emojiSearch}
        aria-label={words.emojiSearch}
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
            // The picker counts rows and columns from 0, ARIA from 1.
            Row: ({ children, "aria-rowindex": index, ...props }) => (
              // biome-ignore lint/a11y/useAriaPropsSupportedByRole: the properties have the role
              <div
                {...props}
                aria-rowindex={index === undefined ? undefined : index + 1}
                className={styles["emojiRow"]}
              >
                {children}
              </div>
            ),
            Emoji: ({ emoji, "aria-colindex": index, ...props }) => (
              <EmojiButton
                {...props}
                aria-colindex={index === undefined ? undefined : index + 1}
                isActive={emoji.isActive}
                hasKeyboard={hasKeyboard}
              >
                {emoji.emoji}
              </EmojiButton>
            ),
          }}
        />
      </Picker.Viewport>
    </Picker.Root>
  );
}

interface EmojiButtonProps extends ComponentProps<"button"> {
  isActive: boolean;
  hasKeyboard: RefObject<boolean>;
}

function EmojiButton({ isActive, hasKeyboard, ...props }: EmojiButtonProps) {
  const button = useRef<HTMLButtonElement>(null);
  // The picker looks for the row by its index and would find the row above.
  useEffect(() => {
    if (isActive && hasKeyboard.current) button.current?.scrollIntoView({ block: "nearest" });
  }, [isActive, hasKeyboard]);
  return (
    <button
      {...props}
      ref={button}
      type="button"
      className={styles["emoji"]}
      data-active={isActive || undefined}
    />
  );
}
