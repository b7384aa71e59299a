"""Long chats and scrolling in the web client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from playwright.async_api import Page

from tests.support.rawchat import RawChat

IN_FLIGHT_MAX = 48
NODES_MAX = 1_500
# Scrolls by `stepPx` in each frame until message `end` is at the edge. Returns the times of the
# frames, the maximum number of nodes, and the seqs that were shown. With `waitForRows`, waits at
# each position until rows are drawn, for at most ten frames, because there are none at the ends of
# the chat.
SCROLL = """async ({ end, stepPx, waitForRows }) => {
  const list = document.querySelector('[role="log"]');
  const seqs = () => [...list.querySelectorAll("[data-seq]")].map((row) => Number(row.dataset.seq));
  const { left, top, bottom } = list.getBoundingClientRect();
  const isBlank = () => [top + 4, bottom - 4].some((y) =>
    !document.elementFromPoint(left + 4, y)?.closest("[data-seq]"));
  const direction = end > Math.max(...seqs()) ? 1 : -1;
  const frames = [], seen = new Set(seqs());
  let nodes = 0, still = 0, last = performance.now();
  while (still < 10) {
    const before = list.scrollTop;
    list.scrollTop += direction * stepPx;
    for (let tries = 0; tries === 0 || (waitForRows && tries < 10 && isBlank()); tries += 1) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      frames.push(now - last);
      last = now;
    }
    for (const seq of seqs()) seen.add(seq);
    nodes = Math.max(nodes, document.getElementsByTagName("*").length);
    still = seen.has(end) && list.scrollTop === before ? still + 1 : 0;
  }
  return { frames: frames.sort((a, b) => a - b), nodes, seen: [...seen] };
}"""
# Types letters one at a time; returns the times of their synchronous work, including layout.
TYPE = """async (count) => {
  const times = [];
  for (let number = 0; number < count; number += 1) {
    const start = performance.now();
    document.execCommand("insertText", false, "x");
    document.activeElement.getBoundingClientRect();
    times.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return times.sort((a, b) => a - b);
}"""


async def fill_chat(sender: RawChat, chat: str, count: int, text_of: Callable[[int], str]) -> None:
    """Send messages 1 to `count` to a chat in order."""
    for first in range(1, count + 1, IN_FLIGHT_MAX):
        numbers = range(first, min(first + IN_FLIGHT_MAX, count + 1))
        sent = [await sender.send_nowait(chat, text_of(number)) for number in numbers]
        await asyncio.gather(*(each.answer for each in sent))


async def scroll_to(
    page: Page, end: int, step_px: int = 600, *, wait_for_rows: bool = True
) -> dict[str, Any]:
    """Scroll to message `end`, the first or the last one, at the frame rate of the page."""
    options = {"end": end, "stepPx": step_px, "waitForRows": wait_for_rows}
    found: dict[str, Any] = await page.evaluate(SCROLL, options)
    return found
