"""Moves the backlog of one partition into the warm tier, in order, losing and repeating nothing.

::

    claim lease ─► read batch ─► write, 25 at a time, several in flight ─► checkpoint and trim
         ▲                         │ throttled, down: wait, again             │
         └─────────────────────────┴──────────────── stored acks, logs trimmed ┘

Dies anywhere: before the write nothing happened; after it the next holder writes the same items
again, which changes nothing; the checkpoint moves only when DynamoDB has all before it, and only
for the holder of the lease. A holder that slept looks at its lease before each write, and a write
has a deadline shorter than the lease. Memory: one batch.
"""

from __future__ import annotations

import asyncio
import functools
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import redis.asyncio
import redis.exceptions
import structlog

from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError, CorruptData, Unavailable
from chatserver.hot.backlog import Backlog, BacklogEntry, CommittedMessage, HideEntry, MarkEntry
from chatserver.hot.eviction import Eviction
from chatserver.hot.leases import Lease
from chatserver.hot.mailbox import StoredMail
from chatserver.protocol import codec, frames
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.directory import Mark
from chatserver.warm.messages import PersistItem
from workers.folding import Folded, Work, fold, tombstone_in_place_of
from workers.partitions import run_partitions
from workers.parts import WorkerParts

log = structlog.get_logger()

WRITE_MAX = 25  # items of a BatchWriteItem, an AWS limit
BACKOFF_S_MAX = 5.0


class Stored(NamedTuple):
    """An entry that was written, and the gateway that took it."""

    gateway: GatewayId
    message: frames.Message


class LeaseLost(Unavailable):
    """Somebody else holds the lease, or will before a write could end."""


def split_lanes(works: Sequence[Work], count: int) -> list[list[Work]]:
    """Return the work in at most `count` lanes, each chat's in one of them, in order.

    Lanes are written side by side, the batches of a lane one after the other: so if this process
    and Redis die together, what is missing of a chat is among the last `WRITE_MAX` that it has.
    """
    lanes: list[list[Work]] = [[] for _ in range(count)]
    for work in works:
        lanes[zlib.crc32(work.item.message.chat.encode()) % count].append(work)
    return [lane for lane in lanes if lane]


class PersistWorker:
    """The persister of one partition."""

    def __init__(self, parts: WorkerParts, partition: int, owner: str) -> None:
        self._parts = parts
        self._settings = parts.settings.persist
        self._partition = partition
        self._backlog = Backlog(parts.hot, partition)
        self._eviction = Eviction(parts.hot)
        self._lease = Lease(
            parts.hot, partition, "persist", owner, self._settings.lease_s, parts.clock
        )
        self._slots = asyncio.Semaphore(self._settings.writes_in_flight_max)
        self._client: redis.asyncio.Redis | None = None  # made when it is first waited for entries

    async def run(self) -> None:
        """Persist until cancelled; on the way out the lease is given back.

        Raises:
            Unavailable: Redis went away; start again.
        """
        try:
            while True:
                if not await self._hold_lease():
                    await asyncio.sleep(self._settings.lease_s / 5)
                    continue
                try:
                    await self._work()
                except LeaseLost as exc:
                    log.warning("persist.lease_lost", partition=self._partition, why=exc.message)
        finally:
            if self._client is not None:
                await self._client.aclose()
            if self._lease.left_s() > 0:
                await self._lease.release()

    async def _hold_lease(self) -> bool:
        if self._lease.left_s() > self._settings.lease_s * 2 / 3:
            return True
        return await self._lease.claim()

    async def _work(self) -> None:
        """Persist batch after batch while the lease holds."""
        at = await self._backlog.get_checkpoint()
        while await self._hold_lease():
            entries = await self._backlog.list_after(at, self._settings.batch_max)
            if not entries:
                await self._wait_for_entries(at)
                continue
            items = await self._persist(entries)
            failpoint("persist.before_checkpoint")
            at, count = entries[-1].id, sum(entry.size for entry in entries)
            # Before the checkpoint, after which nobody would look at these entries again.
            await self._note(items)
            await self._parts.hook_feed.feed_entries(
                self._partition, [item.message for item in items]
            )
            if not await self._backlog.checkpoint(self._lease, at, count):
                raise LeaseLost("another worker has the lease")
            failpoint("persist.after_checkpoint")
            await self._announce(items)

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

    async def _persist(self, entries: Sequence[BacklogEntry]) -> list[Stored]:
        works: list[Work] = []
        marks: dict[tuple[ChatId, UserId], Mark] = {}
        hidden: dict[tuple[ChatId, UserId], set[int]] = {}
        for entry in entries:
            match entry:
                case MarkEntry():
                    mark = Mark(entry.chat, entry.user, entry.read, entry.received)
                    marks[entry.chat, entry.user] = mark
                case HideEntry():
                    hidden.setdefault((entry.chat, entry.user), set()).add(entry.seq)
                case _:
                    for raw in entry.messages:
                        item = await self._decode(raw)
                        if item is not None:
                            works.append(Work(entry.gateway, raw, item))
        folded = fold(works)
        failpoint("persist.before_write")
        try:
            # First: where the entry of a change is, the change is applied. What is changed here was
            # written with an earlier batch; the rest is folded in.
            await self._write_changes(folded)
            async with asyncio.TaskGroup() as group:
                writes = [
                    group.create_task(self._write_lane(lane))
                    for lane in split_lanes(folded.works, self._settings.writes_in_flight_max)
                ]
                if marks:
                    group.create_task(self._write_marks(list(marks.values())))
                self._write_references(group, folded)
                for (chat, user), seqs in hidden.items():
                    group.create_task(self._write_hidden(chat, user, seqs))
        except* ChatError as failures:
            raise failures.exceptions[0] from None
        failpoint("persist.after_write")
        stored = [
            Stored(work.gateway, work.item.message) for write in writes for work in write.result()
        ]
        metrics.PERSISTED.inc(len(stored))
        return stored

    async def _decode(self, raw: CommittedMessage) -> PersistItem | None:
        try:
            message = codec.decode_message(codec.join_message(raw.seq, raw.ts, raw.tail))
        except msgspec.MsgspecError as exc:
            await self._bury(raw, f"not a message: {exc}")
            return None
        return PersistItem(message, raw.receiver)

    async def _write_changes(self, folded: Folded) -> None:
        changes = self._parts.message_changes
        async with asyncio.TaskGroup() as group:
            for place, entries in folded.changes.items():
                write = functools.partial(changes.apply, *place, entries)
                group.create_task(self._write_one("change", write))
            for place, rev in folded.blanks.items():
                write = functools.partial(changes.blank, *place, rev)
                group.create_task(self._write_one("change", write))

    def _write_references(self, group: asyncio.TaskGroup, folded: Folded) -> None:
        """Have the files noted that messages of the batch have, or lost within it."""
        references = self._parts.references
        for work in folded.works:
            if work.item.message.attachments:
                keep = functools.partial(references.keep, work.item.message)
                group.create_task(self._write_one("files", keep))
        for seq, files in folded.lost.items():
            release = functools.partial(references.release, seq, files)
            group.create_task(self._write_one("files", release))

    async def _write_hidden(self, chat: ChatId, user: UserId, seqs: set[int]) -> None:
        add = self._parts.directory.add_hidden
        await self._write_one("hidden", lambda: add(chat, user, seqs))

    async def _write_one(self, what: str, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._until_written(write)
        except CorruptData as exc:
            log.error("persist.refused", what=what, error=exc.message)

    async def _write_lane(self, works: Sequence[Work]) -> list[Work]:
        """Write one batch after the other, and return what was written."""
        written: list[Work] = []
        for start in range(0, len(works), WRITE_MAX):
            written += await self._write(works[start : start + WRITE_MAX])
        return written

    async def _write(self, batch: Sequence[Work]) -> list[Work]:
        """Write a batch; wait out a store that is down; find and bury an item it refuses.

        Returns what was written: nobody may be told that a buried message is stored.
        """
        try:
            await self._put([work.item for work in batch])
        except CorruptData as exc:
            if len(batch) == 1:
                await self._bury(batch[0].committed, exc.message)
                return []
            middle = len(batch) // 2
            return [*await self._write(batch[:middle]), *await self._write(batch[middle:])]
        return list(batch)

    async def _put(self, items: Sequence[PersistItem]) -> None:
        await self._until_written(
            lambda: self._parts.messages.put_batch(items, self._settings.write_timeout_s)
        )

    async def _write_marks(self, marks: Sequence[Mark]) -> None:
        try:
            await self._until_written(lambda: self._parts.directory.put_marks(marks))
        except CorruptData as exc:
            log.error("persist.marks_refused", error=exc.message, count=len(marks))

    async def _until_written(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write, and again with growing pauses while the store is down, as long as we may."""
        wait_s = 0.05
        while True:
            async with self._slots:
                await self._check_lease()
                try:
                    async with asyncio.timeout(self._settings.write_timeout_s):
                        await write()
                except TimeoutError:
                    log.warning("persist.write_too_slow", limit_s=self._settings.write_timeout_s)
                except Unavailable as exc:
                    log.warning("persist.write_failed", error=exc.message, wait_s=wait_s)
                else:
                    return
            await asyncio.sleep(jittered(wait_s))
            wait_s = min(wait_s * 2, BACKOFF_S_MAX)

    async def _check_lease(self) -> None:
        """Make sure that a write that starts now ends before the lease does."""
        if self._lease.left_s() > self._settings.write_timeout_s:
            return
        if not await self._lease.claim() or self._lease.left_s() <= self._settings.write_timeout_s:
            raise LeaseLost("it could end before a write does")

    async def _bury(self, raw: CommittedMessage, reason: str) -> None:
        """Keep it for operators, and write a tombstone in its place: a chat has no holes (I4)."""
        log.error("persist.dead_letter", seq=raw.seq, ts=raw.ts, reason=reason)
        metrics.DEAD_LETTERS.inc()
        await self._backlog.bury(raw, reason)
        tombstone = tombstone_in_place_of(raw)
        if tombstone is None:
            log.error("persist.hole", seq=raw.seq, ts=raw.ts, why="its chat cannot be read")
            return
        try:
            await self._put([PersistItem(tombstone, None)])
        except CorruptData as exc:
            log.error("persist.hole", seq=raw.seq, ts=raw.ts, why=exc.message)

    # afterwards

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
