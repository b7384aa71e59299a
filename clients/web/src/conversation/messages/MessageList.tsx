// The messages of a chat: a virtual list over a bounded window that can grow at both ends.

import {
  type KeyboardEvent,
  memo,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import { useObservable } from "../../data/observable";
import { useKeys } from "../../data/use_keys";
import { Button, SkeletonRows } from "../../design";
import { useText } from "../../i18n";
import { EmojiPopover } from "../EmojiPopover";
import { useConversation } from "../model/context";
import type { Row } from "../model/rows";
import { Announcer } from "./Announcer";
import { JumpButton } from "./JumpButton";
import styles from "./MessageList.module.css";
import { MessageMenu } from "./MessageMenu";
import { MessageRow } from "./MessageRow";
import type { OpenOverlay, OverlayAnchor } from "./MessageTools";
import { ResponseRow } from "./ResponseRow";
import { useReadMarker } from "./use_read_marker";

const LOAD_DISTANCE_PX = 1_200; // from an end of the window, at which the next page is loaded
const END_DISTANCE_PX = 40; // from the end, within which new messages scroll the list
const START_HEIGHT_PX = 64; // height of the note above the first message
const BUFFER_PX = 400;

interface Overlay {
  kind: "menu" | "emoji";
  row: Row;
  anchor: OverlayAnchor;
}

interface MessageListProps {
  isGroup: boolean;
  label: string;
}

export const MessageList = memo(function MessageList({ isGroup, label }: MessageListProps) {
  const words = useText();
  const model = useConversation();
  const state = useObservable(model.list);
  const { rows, isLive, hasOlder, loading, error } = state;
  const scroller = useRef<HTMLDivElement>(null);
  const handle = useRef<VirtualizerHandle>(null);
  const isAtEnd = useRef(true);
  const [isFarFromEnd, setFarFromEnd] = useState(false);
  const [activeKey, setActiveKey] = useState<string | null>(null);
  const [overlay, setOverlay] = useState<Overlay | null>(null);
  const checkRead = useReadMarker(handle, scroller);

  const activeIndex = useMemo(() => {
    const index = rows.findIndex(({ key }) => key === activeKey);
    return index < 0 ? rows.length - 1 : index;
  }, [rows, activeKey]);

  const scrollToEnd = useCallback(() => {
    const element = scroller.current;
    handle.current?.scrollToIndex(model.list.get().rows.length - 1, { align: "end" });
    if (element !== null) element.scrollTop = element.scrollHeight; // below the rows
  }, [model]);

  const stayAtEnd = useCallback(() => {
    if (isAtEnd.current) scrollToEnd();
  }, [scrollToEnd]);

  /** Update the state that depends on the scroll position; load the next page near an end. */
  const updatePosition = useCallback(() => {
    const element = scroller.current;
    if (handle.current === null || element === null) return;
    const list = model.list.get();
    const below = element.scrollHeight - element.clientHeight - element.scrollTop;
    isAtEnd.current = below < END_DISTANCE_PX && list.isLive;
    setFarFromEnd(!list.isLive || below > element.clientHeight);
    if (list.loading === null && list.error === null && list.rows.length > 0) {
      if (element.scrollTop < LOAD_DISTANCE_PX && list.hasOlder) void model.window.loadOlder();
      else if (below < LOAD_DISTANCE_PX && !list.isLive) void model.window.loadNewer();
    }
    checkRead();
  }, [model, checkRead]);

  // After a jump, scroll to the target.
  const { jumpCount, target } = state;
  useLayoutEffect(() => {
    const list = handle.current;
    if (list === null || jumpCount === 0) return;
    const currentRows = model.list.get().rows;
    const targetIndex = currentRows.findIndex(({ isUnreadStart, message }) =>
      typeof target === "number" ? message.seq >= target : target === "unread" && isUnreadStart,
    );
    isAtEnd.current = targetIndex < 0;
    // The Tab key focuses the target.
    if (typeof target === "number") setActiveKey(currentRows[targetIndex]?.key ?? null);
    if (targetIndex < 0) scrollToEnd();
    else list.scrollToIndex(targetIndex, { align: target === "unread" ? "start" : "center" });
  }, [model, jumpCount, target, scrollToEnd]);

  // An own message is always shown.
  useEffect(
    () =>
      model.ends.subscribe(() => {
        isAtEnd.current = true;
        scrollToEnd();
      }),
    [model, scrollToEnd],
  );

  // After new rows, stay at the end, and keep the window bounded.
  useLayoutEffect(() => {
    if (isAtEnd.current && isLive) scrollToEnd();
    const timer = setTimeout(() => {
      const index = handle.current?.findItemIndex(scroller.current?.scrollTop ?? 0) ?? 0;
      model.window.trim(index > rows.length / 2);
      updatePosition();
    });
    return () => clearTimeout(timer);
  }, [model, rows, isLive, loading, error, updatePosition, scrollToEnd]);

  // Keep the newest message visible when the window shrinks, such as for a keyboard.
  useEffect(() => {
    const element = scroller.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => {
      stayAtEnd();
      updatePosition();
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [updatePosition, stayAtEnd]);

  const jumpToEnd = (): void => {
    if (isLive) scrollToEnd();
    else void model.window.jumpToNewest();
  };
  const openOverlay = useCallback<OpenOverlay>((kind, row, anchor) => {
    setActiveKey(row.key);
    setOverlay({ kind, row, anchor });
  }, []);
  const closeOverlay = useCallback(() => setOverlay(null), []);

  const focusRow = (index: number): void => {
    const row = rows[index];
    if (row === undefined) return;
    setActiveKey(row.key);
    handle.current?.scrollToIndex(index, { align: "nearest" });
    requestAnimationFrame(() => findRowElement(scroller.current, row)?.focus());
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const element = event.target instanceof Element ? event.target.closest("[data-key]") : null;
    if (element !== event.target || element === null) return; // from inside a row
    const index = rows.findIndex(({ key }) => key === element.getAttribute("data-key"));
    const row = rows[index];
    const steps: Record<string, number> = {
      ArrowUp: index - 1,
      ArrowDown: index + 1,
      Home: 0,
      End: rows.length - 1,
    };
    const next = steps[event.key];
    if (next !== undefined && !event.altKey) {
      event.preventDefault();
      focusRow(Math.min(rows.length - 1, Math.max(0, next)));
      return;
    }
    const hasModifier = event.altKey || event.ctrlKey || event.metaKey;
    if (hasModifier || row === undefined || row.unsent !== null) return;
    if (row.isSystem || row.message.deleted === true) return;
    const openMenu = (): void => {
      if (model.selection.get() !== null) model.toggleSelected(row.message.seq);
      else openOverlay("menu", row, getCorner(element.querySelector("[data-first]") ?? element));
    };
    const actions: Record<string, () => void> = {
      Enter: openMenu,
      ContextMenu: openMenu,
      r: () => model.setTarget("reply", row.message),
      e: () => model.setTarget("edit", row.message),
      c: () => void model.copy([row.message]),
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  };
  useKeys({ "Alt+End": jumpToEnd });

  const isEmpty = rows.length === 0;
  return (
    <div className={styles["frame"]}>
      <div
        ref={scroller}
        role="log"
        aria-label={label}
        aria-live="off"
        aria-busy={loading === "all"}
        className={styles["scroller"]}
        data-live={isLive}
        onKeyDown={onKeyDown}
      >
        <div className={styles["spacer"]} />
        <div className={styles["start"]}>
          {loading === "older" && <span className={styles["spinner"]} />}
          {!hasOlder && <p>{isEmpty ? words.conversation.empty : words.conversation.beginning}</p>}
          {error !== null && (
            <p role="alert">
              {words.conversation.loadFailed}
              <Button variant="quiet" onClick={() => void model.window.retry()}>
                {words.common.tryAgain}
              </Button>
            </p>
          )}
        </div>
        {isEmpty && loading === "all" && <SkeletonRows count={6} />}
        <Virtualizer
          key={state.generation}
          ref={handle}
          scrollRef={scroller}
          data={rows}
          shift={state.isShifted}
          startMargin={START_HEIGHT_PX}
          bufferSize={BUFFER_PX}
          keepMounted={activeKey === null || activeIndex < 0 ? [] : [activeIndex]}
          onScroll={updatePosition}
          onResize={stayAtEnd}
        >
          {(row, index) => (
            <MessageRow
              key={row.key}
              row={row}
              isGroup={isGroup}
              isActive={index === activeIndex}
              onOverlay={openOverlay}
            />
          )}
        </Virtualizer>
        {isLive && <ResponseRow onGrow={stayAtEnd} />}
        <div className={styles["end"]} />
      </div>
      <Announcer />
      {isFarFromEnd && !isEmpty && <JumpButton onJump={jumpToEnd} />}
      {overlay?.kind === "menu" && (
        <MessageMenu
          row={overlay.row}
          anchor={overlay.anchor}
          onOverlay={openOverlay}
          onClose={closeOverlay}
        />
      )}
      {overlay?.kind === "emoji" && (
        <EmojiPopover
          anchor={overlay.anchor}
          onPick={(emoji) => model.react(overlay.row.message, emoji)}
          onClose={closeOverlay}
        />
      )}
    </div>
  );
});

/** Return the lower start corner of a row. A menu at a point returns the focus to the row. */
function getCorner(element: Element): { x: number; y: number } {
  const { left, right, bottom } = element.getBoundingClientRect();
  return { x: getComputedStyle(element).direction === "rtl" ? right : left, y: bottom };
}

function findRowElement(list: HTMLElement | null, row: Row): HTMLElement | null {
  return list?.querySelector(`[data-key="${CSS.escape(row.key)}"]`) ?? null;
}
