"""Status of the search index."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from chatserver.container.storage import StorageContainer
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.engines.registry import open_engine
from chatserver.features.search.hot import IndexFeed
from chatserver.features.search.model import ORIGIN, IndexerState, Rebuild, Stats


class PartitionStatus(NamedTuple):
    """Status of an index partition. `lag_s`: age of the oldest entry not yet indexed."""

    number: int
    state: IndexerState
    stats: Stats
    lag_s: float

    @property
    def rebuild(self) -> Rebuild | None:
        """The rebuild in progress, if there is one."""
        last_rebuild = self.state.rebuild
        return None if last_rebuild is None or last_rebuild.finished_ms else last_rebuild


async def read_status(container: StorageContainer) -> list[PartitionStatus]:
    """Return the status of each index partition.

    Raises:
        Unavailable: the index does not exist, or Redis does not respond.
    """
    search, feed = container.get(SearchContainer), IndexFeed(container.hot)
    statuses = []
    for number, partitions in search.partitions.items():
        engine = open_engine(container.settings, number, is_writer=False)
        try:
            state = await asyncio.to_thread(engine.load)
            stats = await asyncio.to_thread(engine.measure)
        finally:
            engine.close()
        lag_s = 0.0
        for partition in partitions:
            position = state.positions.get(partition, ORIGIN)
            waiting = await feed.list_entries(partition, position, "+", 1)
            if waiting:
                waiting_ms = int(waiting[0].id.partition("-")[0])
                lag_s = max(lag_s, container.clock.time() - waiting_ms / 1000)
        statuses.append(PartitionStatus(number, state, stats, lag_s))
    return statuses
