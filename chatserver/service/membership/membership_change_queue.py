"""Queue for the membership changes of each chat, with coalesced propagation.

Only one of several changes based on the same version can be committed; the others must be retried.
A process therefore runs a chat's changes one at a time. Changes from different processes are
serialized by the chat version in DynamoDB. A propagation delivers a change to the members' inboxes.
It includes all earlier changes, so all changes that arrive during one propagation share the next.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from chatserver.domain.ids import ChatId
from chatserver.warm.chats.directory_items import StoredChat


class _Queue:
    """One chat's queue. It exists while a request references it."""

    __slots__ = ("__weakref__", "committing", "newest", "propagated", "propagating")

    def __init__(self) -> None:
        self.committing = asyncio.Lock()
        self.propagating = asyncio.Lock()
        self.newest: StoredChat | None = (
            None  # the chat's item after the newest change that is in Redis
        )
        self.propagated = 0  # chat version up to which all changes have been propagated


class MembershipChangeQueue:
    """Runs the changes to each chat one at a time, within one process."""

    def __init__(self, try_deliver: Callable[[StoredChat], Awaitable[bool]]) -> None:
        self._try_deliver = try_deliver
        self._queues: weakref.WeakValueDictionary[ChatId, _Queue] = weakref.WeakValueDictionary()

    def join(self, chat: ChatId) -> _Queue:
        """Return the chat's queue. Keep the reference while using it."""
        return self._queues.setdefault(chat, _Queue())

    async def propagate(self, queue: _Queue, record: StoredChat) -> bool:
        """Propagate a change that is in Redis. Return False if worker `repair` must do it.

        Guarantees:
            Concurrency: one propagation at a time, which includes all earlier changes.
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
