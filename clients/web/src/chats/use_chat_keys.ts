// Keyboard shortcuts of the chat list: the next chat, and back from a chat to the list.

import { type RefObject, useEffect } from "react";
import type { Chat } from "tierchat";
import { useKeys } from "../data/use_keys";
import { useLayer } from "../design/use_layer";
import { buildPath, navigate, useLocation } from "../page/router";

const BASE_LENGTH = import.meta.env.BASE_URL.length - 1;

/**
 * Handle the keys of the chat list: Alt and an arrow key open the chat above or below `current`,
 * and Escape closes the open page. The query parameter `find` focuses the filter.
 */
export function useChatKeys(
  chats: readonly Chat[],
  current: string | undefined,
  filter: RefObject<HTMLInputElement | null>,
): void {
  const { path, query } = useLocation();
  const openNext = (step: number) => (): void => {
    const index = chats.findIndex(({ id }) => id === current);
    const next = chats[index < 0 ? (step > 0 ? 0 : chats.length - 1) : index + step];
    if (next !== undefined) navigate(buildPath("/chats/:chat", { chat: next.id }));
  };
  const close = (): void => {
    const row = document.querySelector<HTMLElement>('[data-pane-name="list"] [aria-current]');
    const parent = path.slice(0, path.lastIndexOf("/"));
    navigate(parent);
    if (parent === "/chats") requestAnimationFrame(() => row?.focus());
  };
  useLayer(current === undefined ? null : close, "page");
  useKeys({
    "Alt+ArrowDown": openNext(1),
    "Alt+ArrowUp": openNext(-1),
  });
  const isFilterRequested = query.has("find");
  useEffect(() => {
    if (!isFilterRequested) return;
    filter.current?.focus();
    filter.current?.select();
    navigate(location.pathname.slice(BASE_LENGTH), { replace: true });
  }, [isFilterRequested, filter]);
}
