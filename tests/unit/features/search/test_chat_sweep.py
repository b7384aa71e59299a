"""Steps of a sweep over chats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from chatserver.domain.ids import ChatId
from chatserver.features.search.model import Rebuild
from chatserver.features.search.worker.chat_sweep import STEP_ENTRIES, ChatSweep
from chatserver.protocol.frames import Message

CHATS, PAGE = 3 * STEP_ENTRIES, 50


class SweepWithoutEntries(ChatSweep):
    """Finds pages of chats that have no entries."""

    def __init__(self, page: int) -> None:
        nothing = cast(Any, None)
        progress = Rebuild("request", parts=1, started_ms=0)
        super().__init__(
            container=nothing, feed=nothing, partitions=(), progress=progress, has_activity=False
        )
        self._page = page
        self._page_count = CHATS // max(page, 1)
        self.pages_read = 0

    async def _iter_chats(self, part: int) -> AsyncIterator[list[ChatId]]:
        for _ in range(self._page_count):
            self.pages_read += 1
            yield [ChatId("chat")] * self._page

    async def _iter_entries(self, chat: ChatId) -> AsyncIterator[list[Message]]:
        for _ in ():
            yield []


@pytest.mark.parametrize("page", [0, 1, PAGE], ids=["other partitions", "one chat", "full pages"])
async def test_step_ends_after_many_chats_without_entries(page: int) -> None:
    """The indexer must index new messages meanwhile."""
    sweep, steps, read = SweepWithoutEntries(page), 0, 0
    while await sweep.next_changes() is not None:
        steps += 1
        assert sweep.pages_read - read <= STEP_ENTRIES
        read = sweep.pages_read

    assert steps >= 3
    assert sweep.progress.part == 1
    assert sweep.progress.chats == (CHATS if page else 0)
