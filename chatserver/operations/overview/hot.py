"""Redis stream of process statistics for the admin page.

Data: ``{figures}:log`` (stream). Fields: ``p``, the process, and ``s``, a snapshot of its
statistics (msgpack of `chatserver.telemetry.process_stats.Snapshot`). Each process appends a
snapshot every two seconds. The key expires `KEPT_S` after the last append. Bound: the entries of
the last `KEPT_S` seconds by the Redis clock, and about `ENTRIES_MAX` entries.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final, NamedTuple

import msgspec

from chatserver.domain.clock import Clock
from chatserver.hot.chats.persist_backlog import Backlog as BacklogOf
from chatserver.hot.redis.client import HotClient
from chatserver.telemetry.process_stats import KEPT_S, PARTITIONS_MAX, Backlog, Snapshot, Waiting

ENTRIES_MAX: Final = 20_000
MEASURED_MAX: Final = 64  # maximum partitions per call


class ReceivedSnapshot(NamedTuple):
    """A process's statistics at one time, and when they were appended (ms, by the Redis clock)."""

    at_ms: int
    process: str
    snapshot: Snapshot


class StatsPage(NamedTuple):
    """Process statistics, oldest first.

    The next page starts after `entry`; `now_ms` is Redis time.
    """

    snapshots: list[ReceivedSnapshot]
    entry: str
    now_ms: int
    has_more: bool


class ProcessStatsLog:
    """Appends and reads snapshots of process statistics."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Snapshot).decode
        self._newest_ms = 0  # time of this process's last append (ms, by the Redis clock)

    async def append(self, process: str, snapshot: Snapshot) -> None:
        """Append a snapshot of this process's statistics.

        Guarantees:
            Cost: one call with three commands, about 1 KB. A repeated call appends the snapshot
            again.

        Raises:
            Unavailable: Redis does not respond; the snapshot may have been appended.
        """
        key, kept_ms = self._hot.keys.figures(), int(KEPT_S * 1000)
        oldest = max(0, self._newest_ms - kept_ms)
        entry, *_ = await self._hot.transaction(
            ("XADD", key, "MINID", "~", oldest, "*", "p", process, "s", self._encode(snapshot)),
            ("XTRIM", key, "MAXLEN", "~", ENTRIES_MAX),
            ("PEXPIRE", key, kept_ms),
        )
        self._newest_ms = int(entry.partition(b"-")[0])

    async def list_after(self, entry: str, limit: int) -> StatsPage:
        """Return the snapshots after the stream entry `entry`.

        Snapshots from other releases that cannot be decoded are skipped.

        Raises:
            Unavailable: Redis does not respond.
        """
        key = self._hot.keys.figures()
        reply, (seconds, micros) = await self._hot.snapshot(
            ("XRANGE", key, f"({entry}", "+", "COUNT", limit), ("TIME",)
        )
        snapshots = []
        for name, (_, process, _, body) in reply:
            try:
                snapshot = self._decode(body)
            except msgspec.MsgspecError:
                continue
            snapshots.append(
                ReceivedSnapshot(int(name.partition(b"-")[0]), process.decode(), snapshot)
            )
        newest = reply[-1][0].decode() if reply else entry
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return StatsPage(snapshots, newest, now_ms, len(reply) == limit)


class BacklogStats:
    """Measures the backlogs of all partitions, some per call, and caches the results."""

    def __init__(self, hot: HotClient, clock: Clock) -> None:
        self._hot = hot
        self._clock = clock
        self._partitions = itertools.cycle(range(hot.keys.partitions))
        self._waiting: dict[int, Waiting] = {}

    async def measure(self) -> Backlog:
        """Measure up to `MEASURED_MAX` partitions; return the latest results for all partitions.

        Guarantees:
            Cost: one small call per measured partition, or four if the partition has a backlog.

        Raises:
            Unavailable: Redis does not respond.
        """
        count = min(self._hot.keys.partitions, MEASURED_MAX)
        batch = list(itertools.islice(self._partitions, count))
        for waiting in await asyncio.gather(*map(self._measure, batch)):
            self._waiting[waiting.partition] = waiting
        backlogs = sorted(self._waiting.values(), key=lambda backlog: -backlog.entries)
        return Backlog(
            sum(backlog.entries for backlog in backlogs),
            max((backlog.age_s for backlog in backlogs), default=0.0),
            [backlog for backlog in backlogs[:PARTITIONS_MAX] if backlog.entries],
        )

    async def _measure(self, partition: int) -> Waiting:
        backlog = BacklogOf(self._hot, partition)
        entries = await backlog.count_waiting()
        oldest_ms = await backlog.find_oldest_ms() if entries else None
        age_s = 0.0 if oldest_ms is None else max(0.0, self._clock.time() - oldest_ms / 1000)
        return Waiting(partition, entries, round(age_s, 3))
