"""Dependencies of search."""

from __future__ import annotations

import asyncio
import functools
from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.search.engines.registry import (
    count_partitions,
    is_enabled,
    load_engine,
    open_engine,
)
from chatserver.features.search.model import Engine, Order, group_redis_partitions
from chatserver.features.search.service import Position, Result, Search


class SearchContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._is_loaded = False

    @property
    def is_enabled(self) -> bool:
        return is_enabled(self._core.settings)

    def open_writer(self, number: int) -> Engine:
        return open_engine(self._core.settings, number, is_writer=True)

    def open_reader(self, number: int) -> Engine:
        return open_engine(self._core.settings, number, is_writer=False)

    @cached_property
    def partitions(self) -> dict[int, list[int]]:
        """The Redis partitions that each index partition covers."""
        redis_partitions = self._core.hot.keys.partitions
        count = count_partitions(self._core.settings, redis_partitions)
        return group_redis_partitions(count, redis_partitions)

    @cached_property
    def search(self) -> Search:
        core = self._core
        readers = (
            [self.open_reader(number) for number in self.partitions]
            if is_enabled(core.settings)
            else []
        )
        search = Search(
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
    ) -> tuple[list[Result], str | None]:
        """Return results and the cursor of the next page. Cursors are valid for HTTP and WebSocket.

        Raises:
            BadRequest: the cursor belongs to another search or another viewer.
            ChatError: see `Search.find`.
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
