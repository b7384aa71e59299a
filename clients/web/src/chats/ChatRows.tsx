// The rows of the chat list: pinned chats, and a virtual list of the other chats, with arrow keys.

import {
  createContext,
  type FocusEvent,
  type KeyboardEvent,
  type ReactNode,
  type Ref,
  type UIEvent,
  use,
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import type { Chat } from "tierchat";
import type { CustomContainerComponent, CustomItemComponent } from "virtua";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import { useText } from "../i18n";
import styles from "./ChatListPage.module.css";
import { ChatRow } from "./ChatRow";

const NEAR_END_PX = 1_500;
const BUFFER_PX = 600;
const FOCUS_ATTEMPTS = 10; // frames until a row is positioned
const STEPS: Readonly<Record<string, number>> = {
  ArrowDown: 1,
  ArrowUp: -1,
  PageDown: 10,
  PageUp: -10,
  Home: -Infinity,
  End: Infinity,
};

/** Functions of the list for other components. */
export interface ChatRowsHandle {
  focusFirst: () => void;
}

interface ChatRowsProps {
  ref: Ref<ChatRowsHandle>;
  pinned: readonly Chat[];
  chats: readonly Chat[];
  current: string | undefined;
  /** True if more chats can be loaded. */
  hasMore: boolean;
  /** Called near the end of the list. */
  onNearEnd: () => void;
  /** Content above the chats. */
  above: ReactNode;
  /** Content below the chats. */
  children: ReactNode;
}

/** The scrolling part of the chat list. */
export function ChatRows(props: ChatRowsProps) {
  const { ref, pinned, chats, current, hasMore, onNearEnd, ...rest } = props;
  const text = useText();
  const scroller = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const [topPx, setTopPx] = useState(0);
  const [focused, setFocused] = useState<string | null>(null);
  const focusedIndex = focused === null ? -1 : chats.findIndex(({ id }) => id === focused);

  useLayoutEffect(() => {
    const element = top.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setTopPx(element.offsetHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const topRows = (): HTMLElement[] => [
    ...(top.current?.querySelectorAll<HTMLElement>('li > a, button:not([tabindex="-1"])') ?? []),
  ];
  const focusAt = (position: number): void => {
    const above = topRows();
    const end = above.length + chats.length - 1;
    const target = Math.min(end, Math.max(0, position));
    const index = target - above.length;
    if (index < 0) {
      above[target]?.focus();
      return;
    }
    setFocused(chats[index]?.id ?? null);
    list.current?.scrollToIndex(index, { align: "nearest" });
    focusWhenVisible(() => scroller.current?.querySelector(`[data-index="${index}"] > a`) ?? null);
  };
  useImperativeHandle(ref, () => ({ focusFirst: () => focusAt(0) }));

  const onKeyDown = (event: KeyboardEvent): void => {
    const step = STEPS[event.key];
    const target = event.target as HTMLElement;
    if (step === undefined || target.closest('[role="menu"]') !== null) return;
    const above = topRows();
    const index = getRowIndex(target);
    const position = index < 0 ? above.indexOf(target) : above.length + index;
    if (position < 0) return;
    event.preventDefault();
    focusAt(position + step);
  };
  const onFocus = ({ target }: FocusEvent): void => {
    setFocused(chats[getRowIndex(target)]?.id ?? null);
  };
  const onScroll = ({ currentTarget: area }: UIEvent<HTMLElement>): void => {
    if (area.scrollHeight - area.scrollTop - area.clientHeight < NEAR_END_PX) onNearEnd();
  };
  // The first page may not fill the window.
  useEffect(() => {
    const area = scroller.current;
    if (area !== null && area.scrollHeight <= area.clientHeight) onNearEnd();
  }, [chats.length, onNearEnd]);

  const renderRow = (chat: Chat, isPinned: boolean) => (
    <ChatRow key={chat.id} chat={chat} isPinned={isPinned} isCurrent={chat.id === current} />
  );
  return (
    <div
      ref={scroller}
      className={styles["list"]}
      onScroll={onScroll}
      onKeyDown={onKeyDown}
      onFocus={onFocus}
    >
      <div ref={top} className={styles["top"]}>
        {rest.above}
        {pinned.length > 0 && (
          <ul aria-label={text.chats.pinned} className={styles["pinned"]}>
            {pinned.map((chat) => (
              <li key={chat.id}>{renderRow(chat, true)}</li>
            ))}
          </ul>
        )}
      </div>
      {chats.length > 0 && (
        <SizeContext value={hasMore ? -1 : chats.length}>
          <Virtualizer
            ref={list}
            as={List}
            item={Item}
            scrollRef={scroller}
            data={chats}
            startMargin={topPx}
            bufferSize={BUFFER_PX}
            keepMounted={focusedIndex < 0 ? [] : [focusedIndex]}
          >
            {(chat) => renderRow(chat, false)}
          </Virtualizer>
        </SizeContext>
      )}
      {rest.children}
    </div>
  );
}

/** The number of items of the list; -1: unknown. */
const SizeContext = createContext(-1);

const List: CustomContainerComponent = ({ ref, style, children }) => {
  const text = useText();
  return (
    <ul ref={ref} style={style} aria-label={text.chats.all}>
      {children}
    </ul>
  );
};

const Item: CustomItemComponent = ({ ref, style, index, children }) => (
  <li
    ref={ref}
    style={style}
    data-index={index}
    aria-setsize={use(SizeContext)}
    aria-posinset={index + 1}
  >
    {children}
  </li>
);

/** Return the index of the chat whose row contains an element, or -1. */
function getRowIndex(element: Element): number {
  return Number(element.closest("[data-index]")?.getAttribute("data-index") ?? -1);
}

/** Focus a row when it is visible: the list hides rows until it has measured them. */
function focusWhenVisible(find: () => HTMLElement | null, attempts = FOCUS_ATTEMPTS): void {
  const row = find();
  row?.focus();
  if (attempts > 0 && (row === null || document.activeElement !== row)) {
    requestAnimationFrame(() => focusWhenVisible(find, attempts - 1));
  }
}
