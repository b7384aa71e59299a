"""Reads the Stream of table `messages`, and restores items that TTL removed too early.

`workers.archive.ttl_removal_checks` checks the removals.

::

    plan ─► which shards may be read, by which reader (`chatserver.warm.streams.shard_lineage`)
         ─► claim some: each is read by a task, page by page
                page ─► TTL removals handled ─► checkpoint written, lease renewed

Usually there is nothing to restore: the archive worker copies entries before TTL removes them.
After a crash, the next holder of a shard handles the removals after the last checkpoint again. A
shard that cannot be read does not stop the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import attrs
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import Clock
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, ConfigError
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import IteratorExpired, StreamTrimmed, TableMissing
from chatserver.warm.dynamo.connections import open_dynamodb_streams
from chatserver.warm.streams.checkpoints import ShardLease, ShardLeaseLost, StreamCheckpoints
from chatserver.warm.streams.reader import StreamReader, StreamRecord
from chatserver.warm.streams.shard_lineage import KEPT_MS, SLACK_MS, Shard, ShardProgress, plan
from workers.archive import LEASE_S
from workers.archive.container import ArchiveContainer
from workers.archive.ttl_removal_checks import TtlRemovalHandler

log = structlog.get_logger()

STREAM_POLL_S = 5.0

PAGES_AT_ONCE_MAX: Final = 8  # maximum concurrent page reads per process
CHECKPOINT_S: Final = 5.0  # checkpoint interval while there are records to read
READ_S: Final = 0.2  # minimum interval between reads of a shard; AWS allows five per second


@attrs.define(eq=False, repr=False, kw_only=True)
class TtlStreamReader:
    """Reads this process's share of the shards of the DynamoDB Stream of `messages`."""

    _streams: StreamReader
    _rows: StreamCheckpoints
    _handler: TtlRemovalHandler
    _name: str
    _clock: Clock
    _poll_s: float
    _lease_s: float
    _pages: asyncio.Semaphore = attrs.field(
        factory=lambda: asyncio.Semaphore(PAGES_AT_ONCE_MAX), init=False
    )
    _tasks: dict[str, asyncio.Task[None]] = attrs.field(factory=dict, init=False)
    # last heartbeat of this reader
    _seen_s: float = attrs.field(default=float("-inf"), init=False)

    async def run(self) -> None:
        """Read until cancelled, then release the shards. Failures are retried."""
        try:
            while True:
                try:
                    await self.rebalance()
                except ChatError as exc:
                    log.error("stream.list_failed", error=exc.message)
                await asyncio.sleep(add_jitter(min(self._poll_s, self._lease_s / 3)))
        finally:
            await self._stop(list(self._tasks))
            with contextlib.suppress(ChatError):
                await self._rows.remove_reader(self._name)

    async def rebalance(self) -> None:
        """Claim and release shards as `plan` decides, and report lost shards.

        Raises:
            Unavailable: DynamoDB does not respond.
            ConfigError: the table has no Stream, or permission is missing.
        """
        self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        now = self._clock.time()
        if now - self._seen_s >= self._lease_s / 3:
            await self._rows.put_reader(self._name, now)
            self._seen_s = now
        # The order matters: a list of shards that is read after a parent's end was recorded
        # includes the children.
        state = await self._rows.get_state(now)
        listed = await self._streams.list_shards()
        next_steps = plan(listed, state.progress, state.readers, self._name, int(now * 1000))
        metrics.STREAM_LAG.set(next_steps.late_ms / 1000)
        for lost in next_steps.lost:
            if await self._rows.close(lost, now):
                self._report_lost(lost.name, lost.read_to_ms, "shard_expired")
        await self._stop(next_steps.to_release)
        own = {
            name
            for name, shard_progress in state.progress.items()
            if shard_progress.holder == self._name
        }
        for shard in [*next_steps.to_claim, *(s for s in listed if s.name in own)]:
            if shard.name not in self._tasks and shard.name not in next_steps.to_release:
                await self._claim(shard, state.progress)
        metrics.STREAM_LIST_TIME.set(now)

    async def _claim(self, shard: Shard, progress: dict[str, ShardProgress]) -> None:
        before = None if shard.parent_name is None else progress.get(shard.parent_name)
        since = None if before is None else before.read_to_ms
        hold = await self._rows.claim(shard, self._name, self._clock.time(), since)
        if hold is not None:
            task = asyncio.create_task(self._read(shard, hold), name=f"shard-{shard.id}")
            self._tasks[shard.name] = task

    async def _stop(self, names: list[str]) -> None:
        stopped = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait(stopped)

    async def _read(self, shard: Shard, hold: ShardLease) -> None:
        """Read a shard until its end, an error or a lost lease; raise only on cancellation."""
        reading = _ShardReader(self, shard, hold)
        try:
            await reading.run()
        except ShardLeaseLost as exc:
            log.warning("stream.lease_lost", shard=shard.name, error=exc.message)
            return
        except ChatError as exc:
            log.warning("stream.shard_failed", shard=shard.name, error=exc.message)
        except asyncio.CancelledError:
            with contextlib.suppress(ChatError):
                await reading.save(keep=False)
            raise
        except Exception:
            log.exception("stream.shard_crashed", shard=shard.name)
        with contextlib.suppress(ChatError):
            await reading.save(keep=False)

    def _report_lost(self, shard: str, read_to_ms: int, reason: str) -> None:
        unread_s = int(self._clock.time() - read_to_ms / 1000)
        log.error(
            "stream.records_lost",
            shard=shard,
            read_to_ms=read_to_ms,
            unread_s=unread_s,
            reason=reason,
        )
        metrics.STREAM_LOST.inc()


class _ShardReader:
    def __init__(self, reader: TtlStreamReader, shard: Shard, hold: ShardLease) -> None:
        self._reader = reader
        self._shard = shard
        self._hold = hold
        self._is_done = False
        self._has_more = False  # True if records have been read since the last checkpoint
        self._saved_at = reader._clock.monotonic()

    async def run(self) -> None:
        reader, iterator = self._reader, await self._open()
        while True:
            async with reader._pages:
                requested_ms = int(reader._clock.time() * 1000)
                try:
                    page = await reader._streams.read(iterator)
                except IteratorExpired:
                    iterator = await self._open()
                    continue
                except StreamTrimmed:
                    iterator = await self._open_after_trim()
                    continue
                failpoint("stream.after_read")
                await self._handle_records(page.records, requested_ms)
            if page.next is None:
                self._is_done = True
                await self.save(keep=False)
                return
            iterator = page.next
            self._has_more |= bool(page.records)
            silent_s = reader._clock.monotonic() - self._saved_at
            third_s = reader._lease_s / 3
            if silent_s >= (min(CHECKPOINT_S, third_s) if self._has_more else third_s):
                await self.save(keep=True)
            wait_s = min(READ_S, reader._poll_s) if page.records else reader._poll_s
            await asyncio.sleep(add_jitter(wait_s))

    async def _handle_records(self, records: list[StreamRecord], requested_ms: int) -> None:
        removed = [record.removed for record in records if record.removed is not None]
        if removed:
            await self._reader._handler.handle(removed)
            failpoint("stream.before_record")
        if records:
            read_to_ms = int(records[-1].created_s * 1000) or requested_ms
            self._hold = self._hold._replace(position=records[-1].sequence, read_to_ms=read_to_ms)
        else:
            self._hold = self._hold._replace(read_to_ms=requested_ms)

    async def _open(self) -> str:
        """Return an iterator after the last handled record."""
        position = self._hold.position
        try:
            if position is None:
                self._check_age()
            return await self._reader._streams.open_iterator(self._shard, position)
        except StreamTrimmed:
            return await self._open_after_trim()
        except TableMissing as exc:
            raise ConfigError(f"{exc.message}: the shard has expired") from exc

    async def _open_after_trim(self) -> str:
        """Return an iterator at the oldest record; report records that may have expired unread."""
        self._check_age()
        return await self._reader._streams.open_iterator(self._shard, None)

    def _check_age(self) -> None:
        now_ms = self._reader._clock.time() * 1000
        if now_ms - self._hold.read_to_ms > KEPT_MS - SLACK_MS:
            self._reader._report_lost(self._shard.name, self._hold.read_to_ms, "records_expired")
            # Set `read_to_ms` to now, so that the loss is reported only once.
            self._hold = self._hold._replace(read_to_ms=int(now_ms))

    async def save(self, *, keep: bool) -> None:
        """Write the checkpoint; renew the lease, or release it. Raises ShardLeaseLost."""
        now = self._reader._clock.time()
        await self._reader._rows.save(self._hold, now, is_done=self._is_done, keep=keep)
        self._saved_at = self._reader._clock.monotonic()
        self._has_more = False
        failpoint("stream.after_record")


async def run_stream(container: StorageContainer, owner: str) -> None:
    """Read the Stream until cancelled.

    Raises:
        ConfigError: the Streams endpoint is not a URL.
    """
    settings = container.settings
    async with open_dynamodb_streams(settings.warm) as client:
        await TtlStreamReader(
            streams=StreamReader(client, settings.warm),
            rows=container.get(ArchiveContainer).stream_rows,
            handler=container.get(ArchiveContainer).removals,
            name=owner,
            clock=container.clock,
            poll_s=STREAM_POLL_S,
            lease_s=LEASE_S,
        ).run()
