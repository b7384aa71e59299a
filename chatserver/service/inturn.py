"""Changes of one chat, one after the other in a process, and told together.

Of two changes decided on the same version only one can be written: in a burst all but one would be
decided again and again, and none be done in time. So those of one process wait for each other here;
those of several processes still meet at the version in DynamoDB. To tell members of a change takes
in all that was made before, so changes that come while one is told are told by one more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from chatserver.domain.ids import ChatId
from chatserver.service.turnover import ChangedChat


class _Queue:
    """Of one chat, as long as somebody is in it."""

    __slots__ = ("__weakref__", "making", "newest", "telling", "told")

    def __init__(self) -> None:
        self.making = asyncio.Lock()
        self.telling = asyncio.Lock()
        self.newest: ChangedChat | None = None  # that is in Redis
        self.told = 0  # the version up to which all was told


class InTurn:
    """The queues of one process."""

    def __init__(self, try_to_tell: Callable[[ChangedChat], Awaitable[bool]]) -> None:
        self._try_to_tell = try_to_tell
        self._queues: weakref.WeakValueDictionary[ChatId, _Queue] = weakref.WeakValueDictionary()

    def join(self, chat: ChatId) -> _Queue:
        """Return the queue of a chat; whoever waits in it keeps it."""
        return self._queues.setdefault(chat, _Queue())

    async def tell(self, queue: _Queue, record: ChangedChat) -> bool:
        """Have a change told that is in Redis; False if `workers.repair` has to.

        Guarantees:
            Concurrency: one at a time is told, the newest; those that it takes in are not.
            Cancellation: safe; it may be told.
        """
        if queue.newest is None or record.version > queue.newest.version:
            queue.newest = record
        async with queue.telling:
            if queue.told >= record.version:
                return True
            newest = queue.newest
            is_told = await self._try_to_tell(newest)
            if is_told:
                queue.told = newest.version
            return is_told
