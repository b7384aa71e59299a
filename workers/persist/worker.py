"""Persist worker of one partition: moves its backlog to the warm tier, each chat in order.

::

    claim lease ─► read ─► queue by chat ─► write chunks ─► publish, progress ─► checkpoint, trim
         ▲           │     (chat_queues)       │                                   └─► ack
         └───────────┘                         └─► a slow chat: in its own task

Only the holder of the lease can move the checkpoint, and only when DynamoDB has all entries before
it. The holder checks its lease before each write, and the deadline of a write is shorter than the
lease. Two values in Redis describe writes past the checkpoint: `ahead` is the newest entry that may
be stored already, and `progress` contains the last stored seq of each chat.

Crash recovery: a new worker reads up to `ahead` before it writes. It publishes the entries in
`progress` again, without writing them, and writes the rest in chunks that contain the last chunks
of its predecessor. So text that has been changed or deleted by then is never stored again in its
old form. After a loss of data in Redis, the checkpoint and the progress may be too low: then the
worker reads which entries are stored.

An entry is published (`stored` in the chat's hash, notifications to gateways and webhooks) before
the progress or the checkpoint covers it.

Memory: one batch, plus `AHEAD_BYTES_MAX` and `CACHE_BYTES_MAX`. Reading waits while the queues are
full and a chat waits for a writer. If no chat waits, slow chats have filled the queues, and reading
continues for the other chats. It stops `AHEAD_MAX` messages past the checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Epoch, Seq, epoch_start_ms
from chatserver.hot.bus.gateway_stream import StoredUpdate
from chatserver.hot.bus.stream_waiter import StreamWaiter
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.chats.persist_backlog import (
    DEAD_MAX,
    Backlog,
    BacklogEntry,
)
from chatserver.hot.redis.keys import parse_entry_id
from chatserver.protocol import frames
from chatserver.service.messaging.message_change_recovery import CLOCKS_APART_S_MAX
from chatserver.task_groups import open_task_group
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.tracing import Id, Tracer, tracer
from workers.partition_workers import run_partitions
from workers.persist.active_day_recorder import DayRecorder
from workers.persist.backlog_pieces import sort_entries
from workers.persist.batch_cache import BatchCache
from workers.persist.batch_changes import EntryWrite
from workers.persist.batch_writer import NotWritten, PersistLeaseLost, Writer, dead_letter
from workers.persist.chat_queues import CHUNK_MAX, Batch, ChatQueue, ChatQueues, Chunk
from workers.persist.shard_scaling import ShardScaling

log = structlog.get_logger()

BATCH_MAX = 32  # maximum backlog entries per read
WRITES_IN_FLIGHT_MAX = 8  # maximum concurrent writes per partition
IDLE_MS = 3000  # maximum sleep while there are no new entries
SLOW_CHATS_MAX = 16  # maximum chats with a retry task; if more fail, all chats wait
AHEAD_MAX = 200_000  # maximum messages read past the oldest one that is not stored
AHEAD_BYTES_MAX = 67_108_864  # memory limit of the queues; entries beyond it are read again later
CACHE_BYTES_MAX = 33_554_432  # memory limit (bytes) of the `BatchCache`

SLOW_WRITES_MAX = 4  # maximum concurrent writes for slow chats
CHAT_UNREADABLE = "its chat is not readable"
_IS_LOST = "another worker holds the lease, or Redis has begun a new epoch"


class PersistWorker:
    """The persist worker of one partition."""

    def __init__(self, container: StorageContainer, partition: int, owner: str) -> None:
        self._container = container
        self._settings = container.settings.persist
        self._partition = partition
        self._tracer = tracer()
        self._backlog = Backlog(container.hot, partition)
        self._eviction = Eviction(container.hot)
        self._lease = container.make_lease("persist", owner, self._settings.lease_s, partition)
        self._sharding = ShardScaling(
            container.write_shards, ChatLog(container.hot), container.settings.warm
        )
        self._days = DayRecorder(container.active_days)
        slots = WRITES_IN_FLIGHT_MAX
        shared = (container, self._lease, self._backlog, self._days)
        self._is_ending = False  # all tasks are cancelled, or about to be
        make_writer = functools.partial(Writer, *shared, is_ending=lambda: self._is_ending)
        self._writer = make_writer(slots, has_retries=False)
        self._retrying_writer = make_writer(slots, has_retries=True)
        # Writes for slow chats can hang, so they have a limit of their own.
        self._slow_writer = make_writer(SLOW_WRITES_MAX, has_retries=True)
        self._slow: set[ChatId] = set()  # chats whose writes fail while other writes succeed
        self._open: deque[Batch] = deque()  # batches read, but not yet covered by the checkpoint
        self._open_count = 0  # sum of `count` in `_open`
        self._recording = asyncio.Lock()
        self._moved = asyncio.Event()
        self._cache = BatchCache(CACHE_BYTES_MAX)
        self._loading = asyncio.Lock()
        self._epoch = Epoch("")  # in which the entries were read
        self._unsure_upto = (0, 0)  # entries up to this one may be stored: Redis may have lost data
        key = container.hot.keys.backlog(partition)
        self._new_entries = StreamWaiter(container.hot, key)

    async def run(self) -> None:
        """Persist until cancelled. The lease is released on exit.

        Raises:
            Unavailable: Redis is unavailable; restart the worker.
        """
        async with self._lease.release_on_exit():
            try:
                while True:
                    if not await self._lease.hold():
                        await asyncio.sleep(self._settings.lease_s / 5)
                        continue
                    try:
                        await self._persist()
                    except PersistLeaseLost as exc:
                        log.warning(
                            "persist.lease_lost", partition=self._partition, error=exc.message
                        )
            finally:
                await self._new_entries.close()

    async def _persist(self) -> None:
        self._is_ending = False
        self._open.clear()
        self._slow.clear()
        self._days.clear()
        self._open_count = 0
        self._recording = asyncio.Lock()
        self._loading = asyncio.Lock()
        self._cache = BatchCache(CACHE_BYTES_MAX)
        label = str(self._partition)
        metrics.BACKLOG_AGE.labels(label).set_function(self._get_backlog_age_s)
        self._count_slow()
        writers = WRITES_IN_FLIGHT_MAX
        queues = ChatQueues(writers, AHEAD_BYTES_MAX)
        try:
            async with open_task_group() as group:
                for number in range(writers):
                    write = self._write_chunks(group, queues)
                    group.create_task(write, name=f"persist-{self._partition}-{number}")
                try:
                    await self._read(queues)
                    raise PersistLeaseLost("claimed by another worker")
                finally:
                    self._is_ending = True
        finally:
            # The next lease holder reports these metrics; this process's values become stale.
            metrics.BACKLOG_AGE.remove(label)
            metrics.BACKLOG_LENGTH.remove(label)
            metrics.SLOW_CHATS.remove(label)

    def _get_backlog_age_s(self) -> float:
        """Return the age of the oldest backlog entry (s). Called by the metrics exporter."""
        with contextlib.suppress(IndexError):  # another thread may empty `_open`
            return max(0.0, self._container.clock.time() - self._open[0].since_ms / 1000)
        return 0.0

    # reading

    async def _read(self, queues: ChatQueues) -> None:
        """Read and queue backlog entries until the lease is lost."""
        self._epoch = epoch = self._container.hot.get_epoch(self._partition)
        position = await self._backlog.get_checkpoint()
        self._unsure_upto = min(
            parse_entry_id(await self._backlog.get_newest()),
            (epoch_start_ms(epoch) + CLOCKS_APART_S_MAX * 1000, 0),
        )
        ahead = await self._backlog.get_persisting_id()
        queues.is_held = parse_entry_id(position) < parse_entry_id(ahead)
        progress = await self._backlog.get_progress() if queues.is_held else {}
        while await self._lease.hold():
            if self._container.hot.get_epoch(self._partition) != epoch:
                raise PersistLeaseLost(
                    "Redis may have lost data (new epoch); entries already read may no longer exist"
                )
            if self._open_count >= AHEAD_MAX and not queues.is_held:
                await self._wait_for(self._moved)
                continue
            if queues.is_full:
                await self._wait_for(queues.room)
                continue
            entries = await self._backlog.list_after(position, BATCH_MAX)
            if not entries:
                queues.release()
                # The lease must be renewed.
                wait_ms = min(IDLE_MS, int(self._settings.lease_s / 3 * 1000))
                await self._new_entries.wait_after(position, wait_ms)
                continue
            position = entries[-1].id
            await self._enqueue(queues, entries, progress)
            if queues.is_held and parse_entry_id(position) >= parse_entry_id(ahead):
                progress = {}
                queues.release()
            await self._sharding.reshard()

    async def _enqueue(
        self, queues: ChatQueues, entries: Sequence[BacklogEntry], progress: Mapping[ChatId, int]
    ) -> None:
        """Queue a batch, except the entries that are stored according to `progress`."""
        count = sum(entry.size for entry in entries)
        since_ms = parse_entry_id(entries[0].id)[0]
        batch = Batch(
            entries[0].id, entries[-1].id, count, since_ms=since_ms, read_ns=time.time_ns()
        )
        # Record `ahead`, the last id of the batch, before any write past the checkpoint.
        is_past = bool(self._open) or count > CHUNK_MAX
        if is_past and not await self._backlog.record_persisting_id(self._lease, batch.last):
            raise PersistLeaseLost("another worker holds the lease")
        self._open.append(batch)
        self._open_count += count
        pieces, unreadable = sort_entries(entries, self._unsure_upto)
        for raw in unreadable:
            log.error("persist.gap_left", seq=raw.seq, ts=raw.ts, reason=CHAT_UNREADABLE)
            await dead_letter(self._backlog, raw, CHAT_UNREADABLE)
        # The load counts requested writes, not completed ones: a throttled chat needs more shards.
        self._sharding.record([write for piece in pieces for write in piece.writes])
        # Record questions to companions that no worker has recorded yet: trimming the backlog would
        # lose them.
        await self._container.record_pending(self._partition, entries)
        failpoint("persist.before_write")
        # The previous worker may have crashed between the progress and its effects.
        done = [
            write
            for piece in pieces
            for write in piece.writes
            if write.committed.seq <= progress.get(piece.chat, 0)
        ]
        if done:
            dead = {letter.message for letter in await self._backlog.list_dead("0-0", DEAD_MAX)}
            stored = [write for write in done if write.committed not in dead]
            await self._publish_stored(done, stored)
        parked: dict[ChatId, list[EntryWrite]] = {}
        for piece in pieces:
            if piece.chat in progress:
                upto = progress[piece.chat]
                piece.writes = [write for write in piece.writes if write.committed.seq > upto]
            if piece.writes or piece.marks or piece.hidden:
                writes = piece.writes
                if not queues.add(batch, piece):
                    parked[piece.chat] = writes
        if parked:
            self._cache.put(batch.first, parked)
        await self._record_stored([], [], [batch])

    async def _wait_for(self, event: asyncio.Event) -> None:
        event.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease_s / 5):
                await event.wait()

    # writing

    async def _write_chunks(self, group: asyncio.TaskGroup, queues: ChatQueues) -> None:
        async with self._ending_on_error():
            while not self._is_ending:
                picked = await queues.claim()
                await self._load(queues, picked)
                chunks = [queues.cut(queue) for queue in picked]
                try:
                    writes = await self._writer.write([chunk.piece for chunk in chunks])
                except NotWritten as exc:
                    log.warning("persist.write_failed", error=exc.message, chats=len(chunks))
                    for chunk in chunks:
                        await self._write_alone(group, queues, chunk, is_known=len(chunks) == 1)
                else:
                    await self._finish(queues, chunks, writes)

    @contextlib.asynccontextmanager
    async def _ending_on_error(self) -> AsyncIterator[None]:
        """End all tasks of the worker if the block fails; a task that is ending is cancelled.

        Before Python 3.13, `asyncio.TaskGroup` raises the error of a task instead of CancelledError
        if both occur, so a task whose write fails may not notice that it was cancelled.
        """
        try:
            yield
        except BaseException as exc:
            if self._is_ending and isinstance(exc, PersistLeaseLost):
                raise asyncio.CancelledError from exc
            self._is_ending = True
            raise

    async def _load(self, queues: ChatQueues, picked: Sequence[ChatQueue]) -> None:
        """Load the entries that the queues lack, from the cache or the backlog."""
        for queue in picked:
            for item in queues.list_parked(queue):
                # Load one at a time: this may cache entries that the next load needs.
                async with self._loading:
                    writes = self._cache.pop(item.batch.first, queue.chat)
                    if writes is None:
                        writes = await self._read_again(item.batch, queue.chat)
                queues.load(item, writes)

    async def _read_again(self, batch: Batch, chat: ChatId) -> list[EntryWrite]:
        """Read a batch again; return the entries of `chat`, and cache the other chats' entries."""
        entries = await self._backlog.list_between(batch.first, batch.last)
        writes = {piece.chat: piece.writes for piece in sort_entries(entries, self._unsure_upto)[0]}
        if chat not in writes:
            raise PersistLeaseLost("the entries that this worker read are no longer in the backlog")
        chat_work = writes.pop(chat)
        self._cache.put(batch.first, writes)
        return chat_work

    async def _write_alone(
        self, group: asyncio.TaskGroup, queues: ChatQueues, chunk: Chunk, *, is_known: bool
    ) -> None:
        """Write one chunk; if that fails, start `_write_slow`. `is_known`: it has failed before."""
        if not is_known:
            try:
                writes = await self._writer.write([chunk.piece])
            except NotWritten:
                pass
            else:
                await self._finish(queues, [chunk], writes)
                return
        if len(self._slow) >= SLOW_CHATS_MAX:
            # The store is probably unavailable, so all chats wait for it.
            await self._finish(queues, [chunk], await self._retrying_writer.write([chunk.piece]))
            return
        if self._is_ending:
            return
        log.warning("persist.chat_delayed", partition=self._partition, chat=chunk.piece.chat)
        self._slow.add(chunk.piece.chat)
        self._count_slow()
        group.create_task(self._write_slow(queues, chunk), name=f"slow-{chunk.piece.chat}")

    async def _write_slow(self, queues: ChatQueues, chunk: Chunk) -> None:
        """Write a chunk with retries; then schedule the chat normally again."""
        async with self._ending_on_error():
            writes = await self._slow_writer.write([chunk.piece])
            self._slow.discard(chunk.piece.chat)
            self._count_slow()
            await self._finish(queues, [chunk], writes)

    def _count_slow(self) -> None:
        metrics.SLOW_CHATS.labels(str(self._partition)).set(len(self._slow))

    async def _finish(
        self, queues: ChatQueues, chunks: Sequence[Chunk], writes: Sequence[EntryWrite]
    ) -> None:
        """Publish the stored entries, and queue their chats again."""
        failpoint("persist.after_write")
        await self._record_stored(
            chunks, writes, [batch for chunk in chunks for batch in chunk.batches]
        )
        for chunk in chunks:
            queues.requeue(chunk.queue)

    # after the write

    async def _record_stored(
        self, chunks: Sequence[Chunk], writes: Sequence[EntryWrite], batches: Sequence[Batch]
    ) -> None:
        """Publish that chunks are stored, and move the checkpoint past complete batches.

        `writes` are the stored entries. `left` of each of `batches` decreases by one.
        """
        stored = [write.item.message for write in writes]
        metrics.PERSISTED.inc(len(stored))
        self._container.busy_chats.add([message.chat for message in stored])
        async with self._recording:
            # All effects come first: once the progress or the checkpoint is recorded, these entries
            # are not read again.
            await self._container.publish_entries(self._partition, stored)
            settled = [write for chunk in chunks for write in chunk.piece.writes]
            await self._publish_stored(settled, writes)
            for batch in batches:
                batch.left -= 1
            last, count = "", 0
            while self._open and self._open[0].left == 0:
                done = self._open.popleft()
                last, count = done.last, count + done.count
            self._open_count -= count
            tops = find_tops(settled)
            if (
                self._open
                and tops
                and not await self._backlog.record_persisted_seqs(self._lease, tops, self._epoch)
            ):
                raise PersistLeaseLost(_IS_LOST)
            failpoint("persist.before_checkpoint")
            if last and not await self._backlog.checkpoint(self._lease, last, self._epoch):
                raise PersistLeaseLost(_IS_LOST)
            self._moved.set()
        failpoint("persist.after_checkpoint")
        if self._tracer is not None:
            sources = {chunk.piece.chat: chunk.source for chunk in chunks}
            self._record_spans(self._tracer, sources, stored)
        await self._observe_lag(writes)

    def _record_spans(
        self, tracer: Tracer, sources: Mapping[ChatId, Batch], stored: Sequence[frames.Message]
    ) -> None:
        now_ns = time.time_ns()
        for message in stored:
            batch = sources[ChatId(message.chat)]
            labels: dict[str, Id] = {"chat": message.chat, "seq": message.seq}
            labels |= {"partition": self._partition, "batch": batch.count}
            tracer.record_span(message.mid, "persist", batch.read_ns, now_ns, **labels)

    async def _publish_stored(
        self, settled: Sequence[EntryWrite], stored: Sequence[EntryWrite]
    ) -> None:
        """Record in Redis the last settled seq of each chat, and notify the senders' gateways.

        Dead letters are settled, because DynamoDB has their tombstones, but their senders are not
        notified, and wait in vain for `stored`. This also trims the chat logs. Idempotent.
        """
        if not settled:
            return
        tops = find_tops(settled)
        await self._eviction.record_active(self._partition, tops, self._container.clock.time())
        stored_seqs = {(write.chat, write.committed.seq) for write in stored}
        dead: dict[ChatId, list[Seq]] = {}
        for write in settled:
            if (write.chat, write.committed.seq) not in stored_seqs:
                dead.setdefault(write.chat, []).append(write.committed.seq)
        epoch = self._epoch
        await self._backlog.record_persisted(tops, dead, epoch)
        newest = {
            (write.gateway, write.item.message.sender, write.chat): write.committed.seq
            for write in stored
        }
        for (gateway, sender, chat), seq in newest.items():
            self._container.gateway_stream_writer.send(
                gateway, StoredUpdate(sender, chat, seq, epoch)
            )
        # Yield to the event loop once, so that the notifications are sent before later calls.
        await asyncio.sleep(0)

    async def _observe_lag(self, writes: Sequence[EntryWrite]) -> None:
        if not writes:
            return
        newest = max([write.committed.ts for write in writes])
        metrics.PERSIST_LAG.observe(max(0.0, self._container.clock.time() - newest / 1e6))
        waiting = await self._backlog.count_waiting()
        metrics.BACKLOG_LENGTH.labels(str(self._partition)).set(waiting)


async def run_persist(container: StorageContainer, owner: str) -> None:
    """Persist all partitions that no other worker holds, until cancelled.

    Raises:
        Unavailable: all of Redis is unavailable; restart the worker.
    """
    await run_partitions(
        container.hot, "persist", lambda partition: PersistWorker(container, partition, owner).run()
    )


def find_tops(writes: Sequence[EntryWrite]) -> dict[ChatId, Seq]:
    """Return the last seq of each chat; the entries of a chat are in order."""
    return {write.chat: write.committed.seq for write in writes}
