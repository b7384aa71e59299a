// The menu of a message, with quick reactions above it.

import {
  Bookmark,
  CheckSquare,
  Copy,
  Flag,
  Forward,
  Pencil,
  Pin,
  PinOff,
  Reply,
  SmilePlus,
  Trash2,
} from "lucide-react";
import { useObservable } from "../../data/observable";
import { Menu, type MenuItem } from "../../design";
import { useText } from "../../i18n";
import { useConversation } from "../model/context";
import { getPins } from "../model/pins";
import type { Row } from "../model/rows";
import styles from "./MessageMenu.module.css";
import type { OpenOverlay, OverlayAnchor } from "./MessageTools";
import { QUICK_REACTIONS } from "./quick_reactions";

interface MessageMenuProps {
  row: Row;
  anchor: OverlayAnchor;
  onOverlay: OpenOverlay;
  onClose: () => void;
}

export function MessageMenu({ row, anchor, onOverlay, onClose }: MessageMenuProps) {
  const words = useText().conversation;
  const model = useConversation();
  const { message, isOwn } = row;
  const { chat } = model;
  const pins = useObservable(getPins(model).list);
  const isPinned = pins.some((pin) => pin.message.seq === message.seq);
  useObservable(model.group.loaded);
  const canPin = chat.kind !== "group" || model.group.isManager;
  const { isReadOnly } = model;
  const items: (MenuItem | false)[] = [
    !isReadOnly && {
      label: words.reply,
      icon: Reply,
      onSelect: () => model.setTarget("reply", message),
    },
    isOwn &&
      !isReadOnly &&
      message.body !== "" && {
        label: words.edit,
        icon: Pencil,
        onSelect: () => model.setTarget("edit", message),
      },
    message.body !== "" && {
      label: words.copy,
      icon: Copy,
      onSelect: () => void model.copy([message]),
    },
    {
      label: words.forward,
      icon: Forward,
      onSelect: () => model.dialog.set({ kind: "forward", messages: [message] }),
    },
    { label: words.save, icon: Bookmark, onSelect: () => void model.save(message) },
    canPin && {
      label: isPinned ? words.unpin : words.pin,
      icon: isPinned ? PinOff : Pin,
      onSelect: () =>
        void model.attempt(() => (isPinned ? chat.unpin(message.seq) : chat.pin(message.seq))),
    },
    {
      label: words.selectMessage,
      icon: CheckSquare,
      onSelect: () => model.toggleSelected(message.seq),
    },
    !isOwn && {
      label: words.report,
      icon: Flag,
      startsGroup: true,
      onSelect: () => model.dialog.set({ kind: "report", message }),
    },
    {
      label: words.deleteMessage,
      icon: Trash2,
      isDangerous: true,
      startsGroup: isOwn,
      onSelect: () => model.dialog.set({ kind: "delete", messages: [message] }),
    },
  ];
  const ownReaction = message.reactions?.[model.me];
  const reactions = (
    <div className={styles["reactions"]} role="menu" aria-label={words.react}>
      {QUICK_REACTIONS.map((emoji) => (
        <button
          key={emoji}
          type="button"
          role="menuitem"
          tabIndex={-1}
          aria-label={ownReaction === emoji ? words.removeReaction(emoji) : words.reactWith(emoji)}
          data-own={ownReaction === emoji || undefined}
          onClick={() => {
            onClose();
            model.react(message, emoji);
          }}
        >
          {emoji}
        </button>
      ))}
      <button
        type="button"
        role="menuitem"
        tabIndex={-1}
        aria-label={words.moreReactions}
        onClick={() => onOverlay("emoji", row, anchor)}
      >
        <SmilePlus size={20} aria-hidden />
      </button>
    </div>
  );
  return (
    <Menu
      label={words.messageActions}
      anchor={anchor}
      onClose={onClose}
      items={items.filter((item) => item !== false)}
      header={isReadOnly ? null : reactions}
    />
  );
}
