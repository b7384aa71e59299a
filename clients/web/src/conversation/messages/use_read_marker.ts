// Marks messages as read while they are visible.

import { type RefObject, useCallback, useEffect, useRef } from "react";
import { ChatError } from "tierchat";
import type { VirtualizerHandle } from "virtua";
import { useConversation } from "../model/context";
import { isReading } from "../model/conversation_model";

const DELAY_MS = 250;
const RETRY_MS = 3_000;
const END_PX = 24;

/** Return a function that must be called when the visible messages may have changed. */
export function useReadMarker(
  handle: RefObject<VirtualizerHandle | null>,
  scroller: RefObject<HTMLElement | null>,
): () => void {
  const model = useConversation();
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const markVisible = useCallback(() => {
    timer.current = undefined;
    const list = handle.current;
    const element = scroller.current;
    if (list === null || element === null || !isReading() || !model.client.isOnline) return;
    const { rows, isLive } = model.list.get();
    const bottom = element.scrollTop + element.clientHeight;
    const isEnd = isLive && element.scrollHeight - bottom < END_PX;
    const row = isEnd ? rows.at(-1) : rows[list.findItemIndex(bottom - 24) - 1];
    const last = row?.unsent == null ? row?.message.seq : undefined;
    const { top, read } = model.chat;
    const seq = isEnd ? top : (last ?? 0);
    if (seq <= read) return;
    model.chat.markRead(seq).catch((error: unknown) => {
      const isTemporary = error instanceof ChatError && error.isTemporary;
      if (isTemporary) timer.current ??= setTimeout(markVisible, RETRY_MS);
    });
  }, [model, handle, scroller]);
  const schedule = useCallback(() => {
    timer.current ??= setTimeout(markVisible, DELAY_MS);
  }, [markVisible]);
  useEffect(() => {
    const unsubscribe = model.client.on((event) => {
      if (event.type === "connected") schedule();
    });
    addEventListener("focus", schedule);
    document.addEventListener("visibilitychange", schedule);
    return () => {
      clearTimeout(timer.current);
      timer.current = undefined;
      unsubscribe();
      removeEventListener("focus", schedule);
      document.removeEventListener("visibilitychange", schedule);
    };
  }, [model, schedule]);
  return schedule;
}
