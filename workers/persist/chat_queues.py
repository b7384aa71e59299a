"""Queues of entries that wait to be persisted: one per chat, served round-robin. No I/O.

Theory of operation:

- The persist worker reads the backlog in batches and adds the entries of each chat to the chat's
  queue. A writer takes a chunk of at most `CHUNK_MAX` entries from one chat, or chunks from several
  small chats.
- At most one writer holds a chat at a time, so the chat's entries are written in order. After a
  chunk, a chat with more entries goes to the end of the line.
- Chats with a sender that waits for a message to be stored are in a separate priority line.
  Every `ORDINARY_EVERY`-th pick is from the ordinary line, so neither line starves.
- Memory is limited to `bytes_max` of entries plus one batch. The reader waits while the queues are
  full (`is_full`). Entries added beyond the limit are not kept in memory (`Queued.writes` is None);
  the writer reads them from the backlog.

Invariant: a chunk is the longest prefix of a chat's queue that the limits (`CHUNK_MAX`,
`MARKS_MAX`) allow. So if a restarted worker has read as far as its predecessor, its first chunk of
a chat contains the predecessor's last chunk.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId
from workers.persist.batch_changes import EntryWrite
from workers.persist.batch_writer import WRITE_MAX, Piece

CHUNK_MAX = 4 * WRITE_MAX  # maximum entries per chunk
MARKS_MAX = 64  # maximum read marks per chunk
ORDINARY_EVERY = 4
WORK_BYTES = 1_000  # memory overhead per entry in bytes, in addition to its content


@dataclasses.dataclass(slots=True)
class Batch:
    """Backlog entries that were read together, from id `first` to id `last`.

    `count` is the number of messages, read marks and hidden messages. `left` is the
    number of chats whose entries are not stored yet, plus one while the batch is being queued.
    `since_ms` is the commit time of the first entry, and `read_ns` is when the batch was read.
    """

    first: str
    last: str
    count: int
    left: int = 1
    since_ms: int = 0
    read_ns: int = 0


@dataclasses.dataclass(slots=True)
class Queued:
    """The entries of one chat in a batch.

    `writes` are the entries that no chunk contains yet, or None if a writer must read them from the
    backlog. `count` is their number, `from_seq` the first seq, and `bytes` their approximate memory
    size.
    """

    batch: Batch
    piece: Piece
    writes: list[EntryWrite] | None
    count: int
    from_seq: int
    is_awaited: bool
    bytes: int = 0


@dataclasses.dataclass(slots=True, eq=False)
class ChatQueue:
    """Queue of one chat."""

    chat: ChatId
    items: deque[Queued] = dataclasses.field(default_factory=deque)
    count: int = 0
    awaited: int = 0  # number of items with a message whose sender waits until it is stored


class Chunk(NamedTuple):
    """Entries of one chat to be written now.

    `source` is the batch of the first entry. `batches` are the batches that have no more entries
    from the chat after this chunk.
    """

    queue: ChatQueue
    piece: Piece
    source: Batch
    batches: list[Batch]


def estimate_size(writes: Sequence[EntryWrite]) -> int:
    """Return the approximate memory size of entries in bytes."""
    return 2 * sum([len(write.committed.tail) for write in writes]) + WORK_BYTES * len(writes)


class ChatQueues:
    """The queues of one partition.

    `is_held`: no chat can be claimed yet. A new worker first reads all entries that its predecessor
    may have stored (up to `ahead`, see `workers.persist.worker`).
    """

    def __init__(self, writers: int, bytes_max: int) -> None:
        self._writers = writers
        self._bytes_max = bytes_max
        self._queues: dict[ChatId, ChatQueue] = {}  # all queues, even if a writer has claimed them
        self._awaited: OrderedDict[ChatId, ChatQueue] = OrderedDict()
        self._ordinary: OrderedDict[ChatId, ChatQueue] = OrderedDict()
        self._waiting = 0  # number of entries in chats that no writer has claimed
        self._turn = 0
        self._wake_up = asyncio.Event()
        self.room = asyncio.Event()  # set when the queues are no longer full
        self._newest: Batch | None = None
        self._is_over_limit = False  # True if the entries of `_newest` are not kept in memory
        self.is_held = False
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the queues have used up their memory and a chat waits for a writer."""
        return self.bytes >= self._bytes_max and not self.is_held and self._has_waiting

    @property
    def _has_waiting(self) -> bool:
        return bool(self._awaited or self._ordinary)

    def add(self, batch: Batch, piece: Piece) -> bool:
        """Queue a chat's entries from `batch`; return False if they are not kept in memory."""
        writes: list[EntryWrite] | None = piece.writes
        count, first = len(piece.writes), piece.writes[0].committed.seq if piece.writes else 0
        is_awaited = any(write.committed.is_awaited for write in piece.writes)
        if batch is not self._newest:  # a batch is kept in memory as a whole, or not at all
            self._newest, self._is_over_limit = batch, self.bytes >= self._bytes_max
        size = 0
        if count and self._is_over_limit:
            writes = None
        else:
            size = estimate_size(piece.writes)
            self.bytes += size
        piece.writes = []
        batch.left += 1
        queue = self._queues.get(piece.chat)
        if queue is None:
            queue = self._queues[piece.chat] = ChatQueue(piece.chat)
            self._ordinary[piece.chat] = queue
        queue.items.append(
            Queued(
                batch=batch,
                piece=piece,
                writes=writes,
                count=count,
                from_seq=first,
                is_awaited=is_awaited,
                bytes=size,
            )
        )
        queue.count += count
        queue.awaited += is_awaited
        if piece.chat in self._ordinary or piece.chat in self._awaited:
            self._waiting += count
            if is_awaited and self._ordinary.pop(piece.chat, None) is not None:
                self._awaited[piece.chat] = queue
        self._wake_writers()
        return writes is not None

    def release(self) -> None:
        """End `is_held`, so that `claim` returns chats again."""
        self.is_held = False
        self._wake_writers()

    async def claim(self) -> list[ChatQueue]:
        """Wait for the next queued chats, to be written together.

        Guarantees:
            No other caller gets these chats until `requeue` is called for each of them.
            Cancellation: safe; nothing is claimed.
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
            successor = next(iter(line.values()))
            if count + successor.count > share:
                break
            line.popitem(last=False)
            picked.append(successor)
            count += successor.count
        self._waiting -= sum(queue.count for queue in picked)
        return picked

    def list_parked(self, queue: ChatQueue) -> list[Queued]:
        """Return the items of the next chunk that have no entries in memory (`writes` is None).

        Call `load` for each of them before `cut`.
        """
        parked, count = [], 0
        for item in queue.items:
            if count >= CHUNK_MAX:
                break
            if item.writes is None:
                parked.append(item)
            count += item.count
        return parked

    def load(self, item: Queued, writes: Sequence[EntryWrite]) -> None:
        """Set the entries of an item, as read from the backlog."""
        item.writes = [write for write in writes if write.committed.seq >= item.from_seq]
        item.bytes = estimate_size(item.writes)
        self.bytes += item.bytes

    def cut(self, queue: ChatQueue) -> Chunk:
        """Remove and return the next chunk of a chat."""
        piece, source, batches = Piece(queue.chat), queue.items[0].batch, list[Batch]()
        while queue.items and len(piece.writes) < CHUNK_MAX and len(piece.marks) < MARKS_MAX:
            item = queue.items[0]
            assert item.writes is not None
            writes = item.writes[: CHUNK_MAX - len(piece.writes)]
            item.writes = item.writes[len(writes) :]
            item.count -= len(writes)
            queue.count -= len(writes)
            size = estimate_size(writes) if item.writes else item.bytes
            item.bytes -= size
            self.bytes -= size
            piece.writes += writes
            piece.marks |= item.piece.marks
            for user, seqs in item.piece.hidden.items():
                piece.hidden.setdefault(user, set()).update(seqs)
            if item.writes:
                item.from_seq = item.writes[0].committed.seq
                break
            queue.items.popleft()
            queue.awaited -= item.is_awaited
            batches.append(item.batch)
        if not self.is_full:
            self.room.set()
        return Chunk(queue, piece, source, batches)

    def requeue(self, queue: ChatQueue) -> None:
        """Queue a claimed chat again, at the end of the line; remove it if nothing is left."""
        if not queue.items:
            del self._queues[queue.chat]
            return
        line = self._awaited if queue.awaited else self._ordinary
        line[queue.chat] = queue
        self._waiting += queue.count
        self._wake_writers()

    def _wake_writers(self) -> None:
        if not self.is_held and self._has_waiting:
            self._wake_up.set()
