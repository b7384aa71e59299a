"""Erasure of a user from the search index, for the worker `erasures`.

The erasure asks the indexer through Redis, because only the indexer writes the index. The indexer
indexes what was committed before the request, which includes the deletions, deletes the user's
documents and compacts the files.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chatserver.container.storage import StorageContainer
from chatserver.container.storage_ports import EraseIndexed
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.hot import IndexFeed

WAIT_S: Final = 120.0
POLL_S: Final = 0.2


def make_eraser(container: StorageContainer) -> EraseIndexed:
    """Return the function that erasures call."""

    async def erase(user: UserId) -> int:
        made = container.get(SearchContainer)
        if not made.is_enabled:
            return 0
        feed, numbers = IndexFeed(container.hot), list(made.partitions)
        for number in numbers:
            await feed.request_erasure(number, user)
        try:
            async with asyncio.timeout(WAIT_S):
                for number in numbers:
                    while True:
                        if await feed.is_erased(number, user):
                            break
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise Unavailable(
                "search: the index still has messages of the user; is `chatserver worker search` "
                "running?"
            ) from None
        for number in numbers:
            await feed.delete_erasure_request(number, user)
        return len(numbers)

    return erase
