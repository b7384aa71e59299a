"""Chats whose writes fail while those of others do not: each is written by a task of its own.

What later batches hold for such a chat waits behind what is being written of it, so its entries are
stored in order. Once it has caught up it is written with the others again.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable

from chatserver.domain.ids import ChatId
from workers.folding import Work
from workers.writing import Piece, Writer


@dataclasses.dataclass(slots=True)
class Batch:
    """Entries of the backlog that were read together, by the last one of them.

    `count`: messages and marks in them. `left`: parts of it that are not stored yet; one is the
    part of those chats that are not slow. `since_ms`: when the first of them was committed;
    `read_ns`: when they were read.
    """

    last: str
    count: int
    left: int = 1
    since_ms: int = 0
    read_ns: int = 0


Settle = Callable[[Batch, list[Work]], Awaitable[None]]


class SlowChats:
    """Writes slow chats, each in order, until the task group ends."""

    def __init__(
        self, group: asyncio.TaskGroup, writer: Writer, settle: Settle, count_max: int
    ) -> None:
        """`settle` hears of each part of a batch that is stored."""
        self._group = group
        self._writer = writer
        self._settle = settle
        self._count_max = count_max
        self._waiting: dict[ChatId, deque[tuple[Batch, Piece]]] = {}

    @property
    def count(self) -> int:
        """How many chats are slow."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no other chat may be added."""
        return len(self._waiting) >= self._count_max

    def has(self, chat: ChatId) -> bool:
        """Whether what is to be written of a chat has to wait for what is being written."""
        return chat in self._waiting

    def add(self, batch: Batch, piece: Piece) -> None:
        """Write a piece after all before it of its chat."""
        batch.left += 1
        waiting = self._waiting.get(piece.chat)
        if waiting is not None:
            waiting.append((batch, piece))
            return
        self._waiting[piece.chat] = deque([(batch, piece)])
        self._group.create_task(self._catch_up(piece.chat), name=f"slow-{piece.chat}")

    async def _catch_up(self, chat: ChatId) -> None:
        waiting = self._waiting[chat]
        while waiting:
            batch, piece = waiting[0]
            await self._settle(batch, await self._writer.write([piece]))
            waiting.popleft()
        del self._waiting[chat]
