"""Moves the backlog of one partition into the warm tier, in order, losing and repeating nothing.

::

    claim lease ─► read batch ─► write, chat by chat ─► note, feed ─► checkpoint and trim ─► ack
         ▲                         │ a chat is slow
         │                         └─► its own task writes it, in order ─┘
         └── the others go on with the next batch; the checkpoint waits

Dies anywhere: before the write nothing happened; after it the next holder writes the same items
again, which changes nothing; the checkpoint moves only when DynamoDB has all before it, and only
for the holder of the lease. A holder that slept looks at its lease before each write, and a write
has a deadline shorter than the lease.

Where a chat's writes fail, later batches are written before the checkpoint reaches them. Their end
is noted first (`ahead`): who comes next folds all up to there as one batch, so that a text that was
changed or deleted by then is not stored for a moment as it was before.

Memory: a batch, and while chats are slow `ahead_max` entries more; then the others wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import redis.asyncio
import redis.exceptions
import structlog

from chatserver.domain.ids import ChatId, GatewayId, Seq
from chatserver.errors import ChatError, Unavailable
from chatserver.hot.asking import AskedSessions
from chatserver.hot.backlog import (
    Backlog,
    BacklogEntry,
    CommitEntry,
    CommittedMessage,
    HideEntry,
    MarkEntry,
    place_of,
)
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.eviction import Eviction
from chatserver.hot.leases import Lease
from chatserver.hot.mailbox import StoredMail
from chatserver.protocol import codec, frames
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.tracing import Id, Tracer, tracer
from chatserver.warm.directory import Mark
from chatserver.warm.messages import PersistItem
from workers.folding import Work, tombstone_in_place_of
from workers.partitions import run_partitions
from workers.parts import WorkerParts
from workers.slowchats import Batch, SlowChats
from workers.spreading import Spreading
from workers.writing import LeaseLost, NotWritten, Piece, Writer, bury, split_lanes

log = structlog.get_logger()

SLOW_WRITES_MAX = 4  # at once, of slow chats


class Stored(NamedTuple):
    """An entry that was written, and the gateway that took it."""

    gateway: GatewayId
    message: frames.Message


class PersistWorker:
    """The persister of one partition."""

    def __init__(self, parts: WorkerParts, partition: int, owner: str) -> None:
        self._parts = parts
        self._settings = parts.settings.persist
        self._partition = partition
        self._tracer = tracer()
        self._backlog = Backlog(parts.hot, partition)
        self._asked = AskedSessions(parts.hot, partition)
        self._eviction = Eviction(parts.hot)
        self._lease = Lease(
            parts.hot, partition, "persist", owner, self._settings.lease_s, parts.clock
        )
        self._spreading = Spreading(parts.shards, ChatLog(parts.hot), parts.settings.warm)
        slots, shared = self._settings.writes_in_flight_max, (parts, self._lease, self._backlog)
        self._writer = Writer(*shared, slots, is_patient=False)
        self._patient = Writer(*shared, slots, is_patient=True)
        # Calls of slow chats may hang: they take no slot from the others.
        self._slow_writer = Writer(*shared, SLOW_WRITES_MAX, is_patient=True)
        self._slow: SlowChats | None = None
        self._open: deque[Batch] = deque()  # read, and not before the checkpoint yet
        self._settling = asyncio.Lock()
        self._moved = asyncio.Event()
        self._client: redis.asyncio.Redis | None = None  # made when it is first waited for entries

    async def run(self) -> None:
        """Persist until cancelled; on the way out the lease is given back.

        Raises:
            Unavailable: Redis went away; start again.
        """
        async with self._lease.given_back():
            try:
                while True:
                    if not await self._lease.hold():
                        await asyncio.sleep(self._settings.lease_s / 5)
                        continue
                    try:
                        await self._work()
                    except LeaseLost as exc:
                        log.warning(
                            "persist.lease_lost", partition=self._partition, why=exc.message
                        )
            finally:
                if self._client is not None:
                    await self._client.aclose()

    async def _work(self) -> None:
        """Persist batch after batch while the lease holds."""
        self._open.clear()
        self._settling = asyncio.Lock()
        label = str(self._partition)
        metrics.BACKLOG_AGE.labels(label).set_function(self._waiting_s)
        try:
            async with asyncio.TaskGroup() as group:
                self._slow = SlowChats(
                    group, self._slow_writer, self._settle, self._settings.slow_chats_max
                )
                await self._go_on(self._slow)
                raise LeaseLost("another worker has it")
        except* ChatError as failures:
            raise failures.exceptions[0] from None
        finally:
            # Whoever has the lease next tells: what we said is not true for long.
            metrics.BACKLOG_AGE.remove(label)
            metrics.BACKLOG_LENGTH.remove(label)
            metrics.SLOW_CHATS.remove(label)

    def _waiting_s(self) -> float:
        """Return how long the oldest entry has waited; asked by whoever reads the metrics."""
        with contextlib.suppress(IndexError):  # that is another thread
            return max(0.0, self._parts.clock.time() - self._open[0].since_ms / 1000)
        return 0.0

    async def _go_on(self, slow: SlowChats) -> None:
        at = await self._backlog.get_checkpoint()
        ahead = await self._backlog.get_ahead()
        while await self._lease.hold():
            metrics.SLOW_CHATS.labels(str(self._partition)).set(slow.count)
            if self._open and sum(batch.count for batch in self._open) >= self._settings.ahead_max:
                await self._wait_for_slow_chats()
                continue
            if place_of(at) < place_of(ahead):
                entries = await self._backlog.list_upto(at, ahead)
                ahead = at
            else:
                entries = await self._backlog.list_after(at, self._settings.batch_max)
            if not entries:
                await self._wait_for_entries(at)
                continue
            at = entries[-1].id
            since_ms = place_of(entries[0].id)[0]
            count = sum(entry.size for entry in entries)
            batch = Batch(at, count, since_ms=since_ms, read_ns=time.time_ns())
            if self._open and not await self._backlog.note_ahead(self._lease, at):
                return
            self._open.append(batch)
            works = await self._persist(batch, entries, slow)
            failpoint("persist.before_checkpoint")
            # What nobody has noted by then is noted here; else it would be trimmed unanswered.
            await self._asked.note(entries, is_whole=False)
            await self._settle(batch, works)
            await self._spreading.move()

    async def _wait_for_slow_chats(self) -> None:
        self._moved.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease_s / 5):
                await self._moved.wait()

    async def _wait_for_entries(self, at: str) -> None:
        key = self._parts.hot.keys.backlog(self._partition)
        if self._client is None:
            self._client = self._parts.hot.blocking_client(key)
        try:
            read = self._client.xread({key: at}, count=1, block=self._settings.idle_ms)
            await self._parts.hot.within(read)
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._parts.hot.name}: {exc}") from exc

    # writing

    async def _persist(
        self, batch: Batch, entries: Sequence[BacklogEntry], slow: SlowChats
    ) -> list[Work]:
        """Write what is not left to slow chats; return the entries that are stored."""
        pieces = await self._sort(entries)
        # What is asked for, not what is written: a chat that is throttled is the one to spread.
        self._spreading.note([work for piece in pieces for work in piece.works])
        failpoint("persist.before_write")
        for piece in pieces:
            if slow.has(piece.chat):
                slow.add(batch, piece)
        others = [piece for piece in pieces if not slow.has(piece.chat)]
        try:
            async with asyncio.TaskGroup() as group:
                lanes = [
                    group.create_task(self._write_lane(batch, lane, slow))
                    for lane in split_lanes(others, self._settings.writes_in_flight_max)
                ]
        except* ChatError as failures:
            raise failures.exceptions[0] from None
        failpoint("persist.after_write")
        return [work for lane in lanes for work in lane.result()]

    async def _sort(self, entries: Sequence[BacklogEntry]) -> list[Piece]:
        """Return what entries hold for each chat."""
        pieces: dict[ChatId, Piece] = {}
        for entry in entries:
            match entry:
                case CommitEntry():
                    for raw in entry.messages:
                        if (work := await self._decode(entry.gateway, raw)) is not None:
                            chat = work.chat
                            if (piece := pieces.get(chat)) is None:
                                piece = pieces[chat] = Piece(chat)
                            piece.works.append(work)
                case MarkEntry():
                    piece = pieces.setdefault(entry.chat, Piece(entry.chat))
                    mark = Mark(entry.chat, entry.user, entry.read, entry.received)
                    piece.marks[entry.user] = mark
                case HideEntry():
                    piece = pieces.setdefault(entry.chat, Piece(entry.chat))
                    piece.hidden.setdefault(entry.user, set()).add(entry.seq)
        return list(pieces.values())

    async def _decode(self, gateway: GatewayId, raw: CommittedMessage) -> Work | None:
        try:
            message = codec.decode_message(codec.join_message(raw.seq, raw.ts, raw.tail))
        except msgspec.MsgspecError as exc:
            why = f"not a message: {exc}"
        else:
            return Work(gateway, raw, PersistItem(message, raw.receiver))
        tombstone = tombstone_in_place_of(raw)
        if tombstone is None:
            log.error("persist.hole", seq=raw.seq, ts=raw.ts, why="its chat cannot be read")
            await bury(self._backlog, raw, why)
            return None
        return Work(gateway, raw, PersistItem(tombstone, None), why)

    async def _write_lane(self, batch: Batch, lane: Sequence[Piece], slow: SlowChats) -> list[Work]:
        """Write a lane; where that fails, chat by chat, and leave to itself what fails alone."""
        try:
            return await self._writer.write(lane)
        except NotWritten as exc:
            log.warning("persist.write_failed", error=exc.message, chats=len(lane))
        is_alone = len(lane) == 1
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._write_alone(batch, piece, slow, is_known=is_alone))
                    for piece in lane
                ]
        except* ChatError as failures:
            raise failures.exceptions[0] from None
        return [work for task in tasks for work in task.result()]

    async def _write_alone(
        self, batch: Batch, piece: Piece, slow: SlowChats, *, is_known: bool
    ) -> list[Work]:
        """Write a chat's piece. With `is_known`, its writes are known to fail."""
        if not is_known:
            with contextlib.suppress(NotWritten):
                return await self._writer.write([piece])
        if slow.is_full:  # it is rather the store than a chat: all wait for it
            return await self._patient.write([piece])
        log.warning("persist.slow_chat", partition=self._partition, chat=piece.chat)
        slow.add(batch, piece)
        return []

    # afterwards

    async def _settle(self, batch: Batch, works: Sequence[Work]) -> None:
        """Tell who has to know that a part of a batch is stored, and move the checkpoint."""
        items = [Stored(work.gateway, work.item.message) for work in works]
        metrics.PERSISTED.inc(len(items))
        self._parts.busy.add(message.chat for _, message in items)
        async with self._settling:
            # Before the checkpoint, after which nobody would look at these entries again.
            await self._note(items)
            await self._parts.hook_feed.feed_entries(
                self._partition, [item.message for item in items]
            )
            batch.left -= 1
            last, count = "", 0
            while self._open and self._open[0].left == 0:
                done = self._open.popleft()
                last, count = done.last, count + done.count
            if last and not await self._backlog.checkpoint(self._lease, last, count):
                raise LeaseLost("another worker has the lease")
            self._moved.set()
        failpoint("persist.after_checkpoint")
        if self._tracer is not None:
            self._tell(self._tracer, batch, items)
        await self._announce(items)

    def _tell(self, tracer: Tracer, batch: Batch, items: Sequence[Stored]) -> None:
        now_ns = time.time_ns()
        for _, message in items:
            place: dict[str, Id] = {"chat": message.chat, "seq": message.seq}
            place |= {"partition": self._partition, "batch": batch.count}
            tracer.tell(message.mid, "persist", batch.read_ns, now_ns, **place)

    async def _note(self, items: Sequence[Stored]) -> None:
        """Tell the chats how far they are stored, and trim their logs."""
        if items:
            tops = {ChatId(message.chat): Seq(message.seq) for _, message in items}
            await self._backlog.note_persisted(tops)
            await self._eviction.note_active(self._partition, tops, self._parts.clock.time())

    async def _announce(self, items: Sequence[Stored]) -> None:
        """Tell each gateway how far its senders' messages are stored."""
        if not items:
            return
        epoch = self._parts.hot.epoch_of(self._partition)
        stored: dict[tuple[GatewayId, str, str], int] = {}
        for gateway, message in items:
            stored[gateway, message.sender, message.chat] = message.seq
        for (gateway, sender, chat), seq in stored.items():
            self._parts.postman.post(gateway, StoredMail(sender, chat, seq, epoch))
        newest = max(message.ts for _, message in items)
        metrics.PERSIST_LAG.observe(max(0.0, self._parts.clock.time() - newest / 1e6))
        waiting = await self._backlog.count_waiting()
        metrics.BACKLOG_LENGTH.labels(str(self._partition)).set(waiting)


async def run_persist(parts: WorkerParts, owner: str) -> None:
    """Persist every partition that is free, until cancelled.

    Raises:
        Unavailable: Redis went away as a whole; start again.
    """

    async def persist(partition: int) -> None:
        await PersistWorker(parts, partition, owner).run()

    await run_partitions(parts.hot, "persist", persist)
