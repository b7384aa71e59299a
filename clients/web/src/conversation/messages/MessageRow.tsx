// A row of the list: a message or a note, with the day and the unread divider above it.

import { type MouseEvent, memo, type PointerEvent, useRef, useState } from "react";
import type { Message } from "tierchat";
import { Attachments } from "../../content/Attachments";
import { getFileKind, listFileNames } from "../../content/file_kinds";
import { findFile } from "../../content/known_files";
import { LinkPreview } from "../../content/LinkPreview";
import { MessageText } from "../../content/MessageText";
import { findFirstLink, getPlainText } from "../../content/markdown";
import { countOnlyEmoji, getLastLineDirection } from "../../content/text_shape";
import { useObservable } from "../../data/observable";
import { classes, getHue } from "../../design";
import { PersonAvatar, PersonName } from "../../directory/PersonAvatar";
import { useText } from "../../i18n";
import { formatDay } from "../../i18n/format";
import { buildPath, Link } from "../../page/router";
import { useConversation } from "../model/context";
import type { Row } from "../model/rows";
import { useSenderName } from "../sender_name";
import { FailedNotice } from "./FailedNotice";
import { buildMetaText, buildTailText, MessageMeta } from "./MessageMeta";
import styles from "./MessageRow.module.css";
import { MessageTools, type OpenOverlay } from "./MessageTools";
import { Reactions } from "./Reactions";
import { ReplyQuote } from "./ReplyQuote";
import { SystemNote } from "./SystemNote";

const LONG_PRESS_MS = 450;
const MOVE_PX_MAX = 10;

interface MessageRowProps {
  row: Row;
  /** True if messages of others show the sender. */
  isGroup: boolean;
  /** True if the Tab key focuses this row. */
  isActive: boolean;
  onOverlay: OpenOverlay;
}

/** A row. It renders again only if its content changes. */
export const MessageRow = memo(function MessageRow(props: MessageRowProps) {
  const { row, isGroup, isActive, onOverlay } = props;
  const { message } = row;
  const text = useText().conversation;
  const model = useConversation();
  const isSelecting = useObservable(model.selection) !== null;
  return (
    <div
      role="article"
      className={styles["row"]}
      data-key={row.key}
      data-seq={row.unsent === null ? message.seq : undefined}
      tabIndex={isActive ? 0 : -1}
      aria-label={useLabel(row)}
    >
      {row.dayMs !== null && (
        <div className={styles["day"]}>
          <span>{formatDay(row.dayMs)}</span>
        </div>
      )}
      {row.isUnreadStart && (
        <div className={styles["unread"]} data-unread-divider>
          <span>{text.newMessages}</span>
        </div>
      )}
      {row.isSystem ? (
        <SystemNote message={message} />
      ) : (
        <MessageLine row={row} isGroup={isGroup} isSelecting={isSelecting} onOverlay={onOverlay} />
      )}
    </div>
  );
});

function useLabel(row: Row): string | undefined {
  const { content, conversation: words } = useText();
  const { message, isOwn, isSystem } = row;
  const sender = useSenderName(message.sender);
  if (isSystem) return undefined;
  const name = isOwn ? words.you : sender;
  const body = message.deleted === true ? words.deleted : getPlainText(message.body.slice(0, 400));
  const files = listFileNames(message, content.voiceMessage);
  return [words.saysAt(name, buildMetaText(row, words)), body, files].filter(Boolean).join(": ");
}

interface MessageLineProps extends Omit<MessageRowProps, "isActive"> {
  isSelecting: boolean;
}

function MessageLine({ row, isGroup, isSelecting, onOverlay }: MessageLineProps) {
  const model = useConversation();
  const { message, isOwn } = row;
  const [isHovered, setHovered] = useState(false);
  const press = useRef<{ timer: ReturnType<typeof setTimeout>; x: number; y: number } | null>(null);
  const isHighlighted = useObservable(model.highlighted) === message.seq;
  const canAct = row.unsent === null && message.deleted !== true;

  const endPress = (): void => {
    clearTimeout(press.current?.timer);
    press.current = null;
  };
  const onPointerDown = (event: PointerEvent): void => {
    endPress();
    if (event.pointerType !== "touch" || !canAct || isSelecting) return;
    const point = { x: event.clientX, y: event.clientY };
    const timer = setTimeout(() => onOverlay("menu", row, point), LONG_PRESS_MS);
    press.current = { timer, ...point };
  };
  const onPointerMove = ({ clientX, clientY }: PointerEvent): void => {
    const start = press.current;
    if (start === null) return;
    if (Math.hypot(clientX - start.x, clientY - start.y) > MOVE_PX_MAX) endPress();
  };
  const onContextMenu = (event: MouseEvent): void => {
    const isText = getSelection()?.isCollapsed === false;
    const isLink = event.target instanceof Element && event.target.closest("a") !== null;
    if (isText || isLink || !canAct || isSelecting) return;
    event.preventDefault();
    endPress();
    onOverlay("menu", row, { x: event.clientX, y: event.clientY });
  };
  return (
    <div
      className={styles["line"]}
      data-own={isOwn}
      data-last={row.isLast}
      data-highlighted={isHighlighted || undefined}
      onPointerEnter={(event) => setHovered(event.pointerType !== "touch")}
      onPointerLeave={() => {
        setHovered(false);
        endPress();
      }}
      onPointerDown={onPointerDown}
      onPointerMove={onPointerMove}
      onPointerUp={endPress}
      onPointerCancel={endPress}
      onContextMenu={onContextMenu}
      onDoubleClick={(event) => {
        if (event.target === event.currentTarget && canAct) {
          model.target.set({ kind: "reply", message });
        }
      }}
    >
      {isSelecting && canAct && <SelectBox seq={message.seq} />}
      {isGroup && !isOwn && (
        <span className={styles["face"]}>
          {row.isLast && <PersonAvatar user={message.sender} size="s" />}
        </span>
      )}
      <div className={styles["column"]}>
        <div className={styles["hold"]}>
          <Bubble row={row} isGroup={isGroup} />
          {isHovered && canAct && !isSelecting && <MessageTools row={row} onOverlay={onOverlay} />}
        </div>
        {canAct && <Reactions message={message} />}
        <FailedNotice row={row} />
      </div>
    </div>
  );
}

function SelectBox({ seq }: { seq: number }) {
  const words = useText().conversation;
  const model = useConversation();
  const isSelected = useObservable(model.selection)?.has(seq) === true;
  return (
    <input
      type="checkbox"
      className={styles["select"]}
      aria-label={words.selectMessage}
      checked={isSelected}
      onChange={() => model.toggleSelected(seq)}
    />
  );
}

/** Return the seq of the quoted message; a companion's response to the row above has no quote. */
function getQuotedSeq({ reply_to: seq, ai, seq: ownSeq }: Message): number | null {
  return seq == null || (ai != null && seq === ownSeq - 1) ? null : seq;
}

function Bubble({ row, isGroup }: { row: Row; isGroup: boolean }) {
  const words = useText().conversation;
  const model = useConversation();
  const { message, unsent, isOwn } = row;
  const localFiles = unsent?.files.map(({ id }) => findFile(id)).filter((file) => file !== null);
  const files = localFiles ?? message.attachments ?? [];
  const isDeleted = message.deleted === true;
  const quoted = isDeleted ? null : getQuotedSeq(message);
  const isPlain = files.length === 0 && message.reply_to == null;
  const isEmoji = isPlain && countOnlyEmoji(message.body) > 0;
  const link = isDeleted || files.length > 0 ? null : findFirstLink(message.body);
  const isText = !isDeleted && message.body !== "" && !isEmoji;
  const direction = isText ? getLastLineDirection(message.body) : undefined;
  const meta = <MessageMeta row={row} dir={direction} />;
  const tail = (
    <span aria-hidden className={styles["tail"]}>
      {buildTailText(row, words)}
    </span>
  );
  return (
    <div
      className={classes(styles["bubble"], isEmoji && styles["bare"])}
      data-own={isOwn}
      data-first={row.isFirst}
      data-last={row.isLast}
    >
      {isGroup && !isOwn && row.isFirst && (
        <Link
          className={styles["sender"]}
          data-hue={getHue(message.sender)}
          to={buildPath("/people/:user", { user: message.sender })}
        >
          <PersonName user={message.sender} />
        </Link>
      )}
      {quoted !== null && <ReplyQuote seq={quoted} />}
      {files.length > 0 && (
        <div className={styles["files"]}>
          <Attachments
            files={files}
            seq={unsent === null ? message.seq : 0}
            onOpen={(file) =>
              model.openViewer(file.id, message.seq, (item) =>
                ["image", "video"].includes(getFileKind(item.file)),
              )
            }
          />
        </div>
      )}
      {isDeleted ? (
        <p className={styles["gone"]}>
          {words.deleted}
          {tail}
        </p>
      ) : (
        <MessageText text={message.body} tail={tail} />
      )}
      {link !== null && <LinkPreview url={link} tail={tail} />}
      {meta}
    </div>
  );
}
