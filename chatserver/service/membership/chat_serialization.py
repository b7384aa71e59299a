"""Per-chat serialization of membership changes, with coalesced propagation.

Only one of two changes that are based on the same version can be committed. In a burst, the others
would be retried repeatedly, and some would miss their deadline. The changes of one process
therefore wait for each other here; the version in DynamoDB serializes those of different processes.
A propagation includes all earlier changes, so changes that arrive during one share the next.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from chatserver.domain.ids import ChatId
from chatserver.warm.chats.records import Chat


class _Queue:
    """The queue of one chat. It exists while a request uses it."""

    __slots__ = ("__weakref__", "committing", "newest", "propagated", "propagating")

    def __init__(self) -> None:
        self.committing = asyncio.Lock()
        self.propagating = asyncio.Lock()
        self.newest: Chat | None = None  # newest change in Redis
        self.propagated = 0  # version up to which all changes are propagated


class ChatSerializer:
    """The queues of one process."""

    def __init__(self, try_deliver: Callable[[Chat], Awaitable[bool]]) -> None:
        self._try_deliver = try_deliver
        self._queues: weakref.WeakValueDictionary[ChatId, _Queue] = weakref.WeakValueDictionary()

    def join(self, chat: ChatId) -> _Queue:
        """Return the queue of a chat; a reference keeps it alive."""
        return self._queues.setdefault(chat, _Queue())

    async def propagate(self, queue: _Queue, record: Chat) -> bool:
        """Propagate a change that is in Redis; return False if `workers.repair` has to do it.

        Guarantees:
            Concurrency: one propagation at a time, of the newest change; it includes the earlier
            ones.
            Cancellation: safe; the change may have been propagated.
        """
        if queue.newest is None or record.version > queue.newest.version:
            queue.newest = record
        async with queue.propagating:
            if queue.propagated >= record.version:
                return True
            newest = queue.newest
            is_delivered = await self._try_deliver(newest)
            if is_delivered:
                queue.propagated = newest.version
            return is_delivered
