"""Per-chat serialization of membership changes, with coalesced propagation.

Of two changes decided on the same version, only one can be committed. In a burst, all others would
be decided repeatedly, and some would miss their deadline. Changes of one process therefore wait for
each other here; changes of several processes are still serialized by the version in DynamoDB.
Propagating a change includes all earlier ones, so changes that arrive during a propagation share
the next one.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from chatserver.domain.ids import ChatId
from chatserver.warm.chats.records import Chat


class _Queue:
    """The queue of one chat. It exists while a request uses it."""

    __slots__ = ("__weakref__", "making", "newest", "telling", "told")

    def __init__(self) -> None:
        self.making = asyncio.Lock()
        self.telling = asyncio.Lock()
        self.newest: Chat | None = None  # newest change in Redis
        self.told = 0  # version up to which all changes are propagated


class ChatSerializer:
    """The queues of one process."""

    def __init__(self, try_to_tell: Callable[[Chat], Awaitable[bool]]) -> None:
        self._try_to_tell = try_to_tell
        self._queues: weakref.WeakValueDictionary[ChatId, _Queue] = weakref.WeakValueDictionary()

    def join(self, chat: ChatId) -> _Queue:
        """Return the queue of a chat; a reference keeps it alive."""
        return self._queues.setdefault(chat, _Queue())

    async def tell(self, queue: _Queue, record: Chat) -> bool:
        """Propagate a change that is in Redis; return False if that is left to `workers.repair`.

        Guarantees:
            Concurrency: one propagation at a time, of the newest change; it includes the earlier
            ones.
            Cancellation: safe; the change may have been propagated.
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
