"""Sweep over chats for a rebuild or a catch-up, in small steps.

A *rebuild* reads all chats; it scans the `directory` table in `parts`. A *catch-up* reads the
entries after a point in time. With `has_activity`, it reads only the chats that Redis lists as
active since then.

The indexer runs one step between two reads of the backlog, so it keeps indexing new messages. A
step finds all changes before the indexer's backlog position, and the indexer then applies the
changes after it. So each step waits until all entries before the position are persisted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.errors import CorruptData
from chatserver.features.search.hot import IDLE_PAGE, IndexFeed
from chatserver.features.search.model import IndexChanges, Rebuild
from chatserver.features.search.worker.index_changes import add_entries
from chatserver.protocol.frames import PAGE_MAX, Message
from chatserver.warm.chats.chat_scan import iter_chats

log = structlog.get_logger()

PARTS: Final = 32  # number of parts of a rebuild; an interrupted part starts again
STEP_ENTRIES: Final = 1_000
CLOCK_SKEW_S: Final = 120  # allowance for clock differences, which can be a minute


class ChatSweep:
    """Reads the chats of one index partition. `next_changes` updates `progress`."""

    def __init__(
        self,
        *,
        container: StorageContainer,
        feed: IndexFeed,
        partitions: Collection[int],
        progress: Rebuild,
        has_activity: bool,
    ) -> None:
        self._container = container
        self._feed = feed
        self._partitions = frozenset(partitions)
        self.progress = progress
        self._has_activity = has_activity
        self._pages = self._iter_pages()

    async def next_changes(self) -> IndexChanges | None:
        """Read the next entries and return their changes; None at the end.

        Raises:
            Unavailable: a tier does not respond; create a new `ChatSweep`.
        """
        changes, count = IndexChanges(), 0
        async for page in self._pages:
            await asyncio.to_thread(add_entries, changes, page)  # splitting texts takes CPU time
            count += max(1, len(page))
            if count >= STEP_ENTRIES:
                self.progress.messages += changes.size
                return changes
        if count:
            self.progress.messages += changes.size
            return changes
        return None

    async def _iter_pages(self) -> AsyncIterator[list[Message]]:
        """Yield the entries of all chats.

        `next_changes` returns after `STEP_ENTRIES` entries. An empty page counts as one entry, so
        it also returns if it finds only chats without entries or chats of other partitions.
        """
        progress = self.progress
        while progress.part < progress.parts:
            async for chats in self._iter_chats(progress.part):
                for chat in chats:
                    try:
                        async for page in self._iter_entries(chat):
                            yield page
                    except CorruptData as exc:
                        log.error("search.chat_skipped", chat=chat, error=exc.message)
                    progress.chats += 1
                    yield []
                yield []
            progress.part += 1
            yield []

    async def _iter_chats(self, part: int) -> AsyncIterator[list[ChatId]]:
        keys = self._container.hot.keys
        if self._has_activity:
            for partition in sorted(self._partitions):
                after, since_s = 0, self.progress.since_ts // 1_000_000 - CLOCK_SKEW_S
                while chats := await self._feed.list_active_chats(partition, since_s, after):
                    yield chats
                    after += IDLE_PAGE
            return
        client = self._container.dynamodb.for_feature("search")
        async for chats in iter_chats(client, part, self.progress.parts):
            yield [chat for chat in chats if keys.get_partition(chat) in self._partitions]

    async def _iter_entries(self, chat: ChatId) -> AsyncIterator[list[Message]]:
        """Yield the entries of a chat after `since_ts`, oldest first."""
        tiers, since_ts = self._container.older_tiers, self.progress.since_ts
        after, ts = 0, None
        if since_ts:
            before: int | None = None
            while page := await tiers.list_before(chat, before, PAGE_MAX, ts):
                before, ts = page[0].seq, page[0].ts
                if ts <= since_ts or before == 1:
                    break
            if before is None:
                return
            after, ts = before - 1, None
        while page := await tiers.list_after(chat, after, PAGE_MAX, ts):
            yield page
            after, ts = page[-1].seq, page[-1].ts
