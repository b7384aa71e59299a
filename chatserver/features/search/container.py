"""Dependencies of search."""

from __future__ import annotations

import asyncio
import functools
from functools import cached_property
from typing import Final

from chatserver.container.storage import StorageContainer
from chatserver.container.storage_feature_ports import EraseIndexed
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.search.engines.registry import (
    count_partitions,
    is_enabled,
    load_engine,
    open_engine,
)
from chatserver.features.search.hot import IndexFeed
from chatserver.features.search.model import Order, group_redis_partitions
from chatserver.features.search.service import FoundMessage, MessageSearch, Position

ERASURE_S_MAX: Final = 120.0
ERASURE_POLL_S: Final = 0.2


class SearchContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._is_loaded = False

    @property
    def is_enabled(self) -> bool:
        return is_enabled(self._core.settings)

    @cached_property
    def partitions(self) -> dict[int, list[int]]:
        """The Redis partitions that each index partition covers."""
        redis_partitions = self._core.hot.keys.partitions
        count = count_partitions(self._core.settings, redis_partitions)
        return group_redis_partitions(count, redis_partitions)

    @cached_property
    def search(self) -> MessageSearch:
        core = self._core
        readers = (
            [open_engine(core.settings, number, is_writer=False) for number in self.partitions]
            if is_enabled(core.settings)
            else []
        )
        search = MessageSearch(
            engines=readers,
            chats=core.chats,
            members=core.members,
            history=core.history,
            blocks=core.blocks,
            get_partition=lambda chat: core.hot.keys.get_partition(chat) % max(1, len(readers)),
            clock=core.clock,
            charge=functools.partial(core.limits.charge, "requests"),
        )
        core.closers.append(search.close)
        return search

    async def get_page(
        self, viewer: UserId, text: str, order: Order, limit: int, cursor: str | None
    ) -> tuple[list[FoundMessage], str | None]:
        """Return results and the cursor of the next page. Cursors are valid for HTTP and WebSocket.

        Raises:
            BadRequest: the cursor belongs to another search or another viewer.
            ChatError: see `MessageSearch.find`.
        """
        if not self._is_loaded:  # importing LanceDB takes seconds and would block the event loop
            await asyncio.to_thread(load_engine, self._core.settings)
            self._is_loaded = True
        cursors, scope = self._core.cursors, f"search for {text} by {viewer} {order}"
        start = cursors.open(scope, cursor, Position)
        page, next_position = await self.search.find(viewer, text, order, limit, start)
        return page, cursors.sign(scope, next_position)


async def preload_engine(container: StorageContainer) -> None:
    """Import the engine's library in a thread, before the worker starts."""
    await asyncio.to_thread(load_engine, container.settings)


def make_eraser(container: StorageContainer) -> EraseIndexed:
    """Return a function that erases a user from all partitions of the search index.

    Only the indexer writes the index, so the erasure is requested from the indexer through Redis.
    The indexer applies everything committed before the request, deletes the user's documents, and
    compacts the files. The function returns the number of partitions, or 0 if search is disabled.
    """

    async def erase(user: UserId) -> int:
        search = container.get(SearchContainer)
        if not search.is_enabled:
            return 0
        feed, numbers = IndexFeed(container.hot), list(search.partitions)
        for number in numbers:
            await feed.request_erasure(number, user)
        try:
            async with asyncio.timeout(ERASURE_S_MAX):
                for number in numbers:
                    while not await feed.is_erased(number, user):  # noqa: ASYNC110  # another process does it
                        await asyncio.sleep(ERASURE_POLL_S)
        except TimeoutError:
            raise Unavailable(
                "search: the user was not erased from the index in time; check that "
                "`chatserver worker search` is running"
            ) from None
        for number in numbers:
            await feed.delete_erasure_request(number, user)
        return len(numbers)

    return erase
