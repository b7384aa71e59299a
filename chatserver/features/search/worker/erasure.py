"""Erasure of a user from the search index, for the `erasures` worker.

Only the indexer writes the index, so the erasure is requested from the indexer through Redis. The
indexer applies everything committed before the request, deletes the user's documents, and compacts
the files.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chatserver.container.storage import StorageContainer
from chatserver.container.storage_feature_ports import EraseIndexed
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.hot import IndexFeed

WAIT_S: Final = 120.0
POLL_S: Final = 0.2


def make_eraser(container: StorageContainer) -> EraseIndexed:
    """Return a function that erases a user from all partitions of the search index.

    The function returns the number of partitions, or 0 if search is disabled.
    """

    async def erase(user: UserId) -> int:
        search = container.get(SearchContainer)
        if not search.is_enabled:
            return 0
        feed, numbers = IndexFeed(container.hot), list(search.partitions)
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
                "search: the user was not erased from the index in time; check that "
                "`chatserver worker search` is running"
            ) from None
        for number in numbers:
            await feed.delete_erasure_request(number, user)
        return len(numbers)

    return erase
