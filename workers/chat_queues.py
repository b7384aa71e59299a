"""Chats that wait to be persisted: a queue for each chat, served in turn. No I/O.

Theory of operation:

- The persist worker reads the backlog in batches and adds what a batch holds for a chat to the
  chat's queue. Writers take chunks: at most `CHUNK_MAX` entries of a chat, small chats together.
- A chat is with at most one writer, so its entries are written in order. A chat that has more goes
  to the end of the line: a chat with 100,000 entries delays another by one chunk per turn.
- Chats with a send that waits to be stored form a line of their own, which goes first. Every
  `ORDINARY_EVERY`-th turn belongs to the ordinary line, so neither starves.
- Bound: `bytes_max` of entries in memory. Above it a queue keeps only where its entries are in the
  backlog (`Queued.works` is None); the writer reads them again.

Invariant: a chunk is the longest prefix of a chat's queue that fits. A restarted worker that has
read as far as its predecessor cuts a chunk that contains the predecessor's last one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId
from workers.folding import Work
from workers.writing import WRITE_MAX, Piece

CHUNK_MAX = 4 * WRITE_MAX  # entries that a writer takes at once
MARKS_MAX = 64  # read marks of a chat in one chunk
ORDINARY_EVERY = 4
WORK_BYTES = 1_000  # of an entry, beside its text


@dataclasses.dataclass(slots=True)
class Batch:
    """Entries of the backlog that were read together: the ids of the first and of the last one.

    `count`: messages and marks in them. `left`: queued parts that are not stored yet, and one while
    the batch is being read. `since_ms`: commit time of the first entry; `read_ns`: read time.
    """

    first: str
    last: str
    count: int
    left: int = 1
    since_ms: int = 0
    read_ns: int = 0


@dataclasses.dataclass(slots=True)
class Queued:
    """A batch's entries for one chat.

    `works`: the entries, None if they are only in the backlog; `count` of them are left, from
    `from_seq` on.
    """

    batch: Batch
    piece: Piece
    works: list[Work] | None
    count: int
    from_seq: int
    is_awaited: bool


@dataclasses.dataclass(slots=True, eq=False)
class ChatQueue:
    """Queue of one chat."""

    chat: ChatId
    items: deque[Queued] = dataclasses.field(default_factory=deque)
    count: int = 0
    awaited: int = 0  # items with a send that waits to be stored


class Chunk(NamedTuple):
    """Entries of one chat to be written now.

    `source`: the batch that the first of them is from; `batches`: those that hold nothing else of
    the chat.
    """

    queue: ChatQueue
    piece: Piece
    source: Batch
    batches: list[Batch]


def size_of(works: Sequence[Work]) -> int:
    """Return about how many bytes entries take in memory."""
    return sum(2 * len(work.committed.tail) + WORK_BYTES for work in works)


class ChatQueues:
    """The queues of one partition. `is_held`: nothing may be taken yet."""

    def __init__(self, writers: int, bytes_max: int) -> None:
        self._writers = writers
        self._bytes_max = bytes_max
        self._queues: dict[ChatId, ChatQueue] = {}  # with a writer, too
        self._awaited: OrderedDict[ChatId, ChatQueue] = OrderedDict()
        self._ordinary: OrderedDict[ChatId, ChatQueue] = OrderedDict()
        self._waiting = 0  # entries of the chats in both lines
        self._turn = 0
        self._wake_up = asyncio.Event()
        self.is_held = False
        self.bytes = 0

    def add(self, batch: Batch, piece: Piece) -> None:
        """Queue what a batch holds for a chat."""
        works: list[Work] | None = piece.works
        count, first = len(piece.works), piece.works[0].committed.seq if piece.works else 0
        is_awaited = any(work.committed.is_awaited for work in piece.works)
        if count and self.bytes >= self._bytes_max:
            works = None
        else:
            self.bytes += size_of(piece.works)
        piece.works = []
        batch.left += 1
        queue = self._queues.get(piece.chat)
        if queue is None:
            queue = self._queues[piece.chat] = ChatQueue(piece.chat)
            self._ordinary[piece.chat] = queue
        queue.items.append(Queued(batch, piece, works, count, first, is_awaited))
        queue.count += count
        queue.awaited += is_awaited
        if piece.chat in self._ordinary or piece.chat in self._awaited:
            self._waiting += count
            if is_awaited and self._ordinary.pop(piece.chat, None) is not None:
                self._awaited[piece.chat] = queue
        self._signal()

    def release(self) -> None:
        """Let writers take from now on."""
        self.is_held = False
        self._signal()

    async def take(self) -> list[ChatQueue]:
        """Wait for the next chats in line; together they are one write.

        Guarantees:
            The caller has them alone until it calls `put_back` for each.
            Cancellation: safe; nothing is taken.
        """
        while not (picked := self._pick()):
            await self._wake_up.wait()
        return picked

    def _pick(self) -> list[ChatQueue]:
        line = self._awaited
        self._turn += 1
        if not line or (self._ordinary and self._turn % ORDINARY_EVERY == 0):
            line = self._ordinary
        if self.is_held or not line:
            self._wake_up.clear()
            return []
        picked = [line.popitem(last=False)[1]]
        count = picked[0].count
        share = min(CHUNK_MAX, max(WRITE_MAX, self._waiting // self._writers))
        while line and count < WRITE_MAX:
            following = next(iter(line.values()))
            if count + following.count > share:
                break
            line.popitem(last=False)
            picked.append(following)
            count += following.count
        self._waiting -= sum(queue.count for queue in picked)
        return picked

    def list_parked(self, queue: ChatQueue) -> list[Queued]:
        """Return what has to be read again before `cut`."""
        parked, count = [], 0
        for item in queue.items:
            if count >= CHUNK_MAX:
                break
            if item.works is None:
                parked.append(item)
            count += item.count
        return parked

    def load(self, item: Queued, works: Sequence[Work]) -> None:
        """Give an item its entries back, as the backlog has them."""
        item.works = [work for work in works if work.committed.seq >= item.from_seq]
        self.bytes += size_of(item.works)

    def cut(self, queue: ChatQueue) -> Chunk:
        """Take the next entries of a chat off its queue."""
        piece, source, batches = Piece(queue.chat), queue.items[0].batch, list[Batch]()
        while queue.items and len(piece.works) < CHUNK_MAX and len(piece.marks) < MARKS_MAX:
            item = queue.items[0]
            assert item.works is not None
            taken = item.works[: CHUNK_MAX - len(piece.works)]
            item.works = item.works[len(taken) :]
            item.count -= len(taken)
            queue.count -= len(taken)
            self.bytes -= size_of(taken)
            piece.works += taken
            piece.marks |= item.piece.marks
            for user, seqs in item.piece.hidden.items():
                piece.hidden.setdefault(user, set()).update(seqs)
            if item.works:
                item.from_seq = item.works[0].committed.seq
                break
            queue.items.popleft()
            queue.awaited -= item.is_awaited
            batches.append(item.batch)
        return Chunk(queue, piece, source, batches)

    def put_back(self, queue: ChatQueue) -> None:
        """End a turn of a chat: it goes to the end of its line, or leaves."""
        if not queue.items:
            del self._queues[queue.chat]
            return
        line = self._awaited if queue.awaited else self._ordinary
        line[queue.chat] = queue
        self._waiting += queue.count
        self._signal()

    def _signal(self) -> None:
        if not self.is_held and (self._awaited or self._ordinary):
            self._wake_up.set()
