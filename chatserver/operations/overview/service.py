"""Aggregation of process statistics for the admin page: history and current state.

::

    processes ──► {figures}:log ──► StatsHistory: latest snapshot per process ──► a Point every 2 s

A point sums the latest snapshot of each process that published within the last `STALE_S` seconds.
So dead processes disappear from the sums. Percentiles are computed from the merged histograms of
all processes.

Memory: `POINTS_MAX` points and `PROCESSES_MAX` processes. The stream is read only when the page is
requested.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from chatserver.operations.overview.hot import ProcessStatsLog, ReceivedSnapshot
from chatserver.telemetry.process_stats import (
    CHATS_MAX,
    EVERY_S,
    GONE_S,
    KEPT_S,
    QUEUES_MAX,
    STALE_S,
    Backlog,
    Queue,
    SlowClose,
    Snapshot,
    add_buckets,
    compute_quantile,
    list_top_chats,
)

EVERY_MS: Final = int(EVERY_S * 1000)
POINTS_MAX: Final = int(KEPT_S / EVERY_S)
PROCESSES_MAX: Final = 500  # At the limit, new processes are ignored until others stop publishing.
SLOW_SHOWN_MAX: Final = 50
RECENT_POINTS: Final = int(60 / EVERY_S)  # number of points in the last minute
PAGE: Final = 500


class Point(msgspec.Struct, frozen=True):
    """State of all processes at one time (ms since 1970); null means not measured."""

    at_ms: int
    processes: int
    connections: float
    sessions: float
    sends_per_s: float
    refused_per_s: float
    pushes_per_s: float
    persisted_per_s: float
    http_per_s: float
    send_p50_ms: float | None
    send_p99_ms: float | None
    delivery_p50_ms: float | None
    delivery_p99_ms: float | None
    persist_p99_ms: float | None
    loop_p99_ms: float | None
    queue_bytes: float
    slow_closes: int
    backlog: int | None
    backlog_age_s: float | None
    write_units_per_s: float
    read_units_per_s: float


class Process(msgspec.Struct, frozen=True):
    """A process and its latest snapshot. If `is_stale`, the process may be dead or stuck."""

    process: str
    kind: str
    does: str
    host: str
    pid: int
    started_ms: int
    reported_ms: int
    is_stale: bool
    connections: float
    sends_per_s: float
    cpu_share: float
    loop_p99_ms: float | None


class BusyChat(msgspec.Struct, frozen=True):
    """A chat, and how many of its messages were stored in the last minute (may be undercounted)."""

    chat: str
    messages: int
    per_s: float


class Units(msgspec.Struct, frozen=True):
    """DynamoDB units per second that a feature consumed in the last minute."""

    feature: str
    write_per_s: float
    read_per_s: float


class Count(msgspec.Struct, frozen=True):
    """The rate of `name` per second, over the last minute."""

    name: str
    per_s: float


class Overview(msgspec.Struct, frozen=True):
    """Current state, and the history points that the client does not have yet."""

    now_ms: int
    every_ms: int
    points: list[Point]
    processes: list[Process]
    top_chats: list[BusyChat]
    slow: list[SlowClose]
    queues: list[Queue]
    backlog: Backlog | None
    units: list[Units]
    refused: list[Count]
    limited: list[Count]
    closes: list[Count]


class StatsHistory:
    """Aggregates snapshots of process statistics, which must be added in time order."""

    def __init__(self) -> None:
        self._latest: dict[str, ReceivedSnapshot] = {}
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._chats: deque[Mapping[str, int]] = deque(maxlen=RECENT_POINTS)
        self._counts: deque[Mapping[str, float]] = deque(maxlen=RECENT_POINTS)
        self._slow: deque[SlowClose] = deque(maxlen=SLOW_SHOWN_MAX)
        self._new_chats: dict[str, int] = {}
        self._new_counts: dict[str, float] = {}
        self._next_ms = 0  # due time of the next point

    def add(self, received: ReceivedSnapshot) -> None:
        self.advance(received.at_ms)
        if received.process not in self._latest and len(self._latest) >= PROCESSES_MAX:
            return
        self._latest[received.process] = received
        snapshot = received.snapshot
        for chat, count in snapshot.chats.items():
            self._new_chats[chat] = self._new_chats.get(chat, 0) + count
        for name, amount in snapshot.counts.items():
            self._new_counts[name] = self._new_counts.get(name, 0.0) + amount
        self._slow += snapshot.slow

    def advance(self, now_ms: int) -> None:
        """Create the history points up to `now_ms`, and drop old data."""
        if not self._next_ms:
            self._next_ms = (now_ms // EVERY_MS + 1) * EVERY_MS
        # If the admin page has not been requested for a long time, skip points that are too old.
        self._next_ms = max(self._next_ms, (now_ms // EVERY_MS - POINTS_MAX) * EVERY_MS)
        while self._next_ms <= now_ms:
            self._points.append(self._make_point(self._next_ms))
            self._chats.append(dict(list_top_chats([self._new_chats], 2 * CHATS_MAX)))
            self._counts.append(self._new_counts)
            self._new_chats, self._new_counts = {}, {}
            self._next_ms += EVERY_MS
        for process, received in list(self._latest.items()):
            if now_ms - received.at_ms > GONE_S * 1000:
                del self._latest[process]
        while self._slow and now_ms - self._slow[0].at_ms > KEPT_S * 1000:
            self._slow.popleft()  # these have user ids: do not keep them longer than Redis does

    def _make_point(self, at_ms: int) -> Point:
        recent = [
            received.snapshot
            for received in self._latest.values()
            if at_ms - received.at_ms <= STALE_S * 1000
        ]
        backlogs = [snapshot.backlog for snapshot in recent if snapshot.backlog is not None]

        def sum_gauge(name: str) -> float:
            return sum(snapshot.gauges.get(name, 0.0) for snapshot in recent)

        def find_quantile_ms(name: str, share: float) -> float | None:
            merged: dict[float, int] = {}
            for snapshot in recent:
                add_buckets(merged, snapshot.times.get(name, {}))
            value = compute_quantile(merged, share)
            return None if value is None else round(value * 1000, 3)

        ok, dup = compute_rate(recent, "sends:ok"), compute_rate(recent, "sends:dup")
        return Point(
            at_ms=at_ms,
            processes=len(recent),
            connections=sum_gauge("connections"),
            sessions=sum_gauge("sessions"),
            sends_per_s=round(ok + dup, 2),
            refused_per_s=round(compute_rate(recent, "sends:") - ok - dup, 2),
            pushes_per_s=compute_rate(recent, "pushes"),
            persisted_per_s=compute_rate(recent, "persisted"),
            http_per_s=compute_rate(recent, "http:"),
            send_p50_ms=find_quantile_ms("send", 0.5),
            send_p99_ms=find_quantile_ms("send", 0.99),
            delivery_p50_ms=find_quantile_ms("delivery", 0.5),
            delivery_p99_ms=find_quantile_ms("delivery", 0.99),
            persist_p99_ms=find_quantile_ms("persist", 0.99),
            loop_p99_ms=find_quantile_ms("loop", 0.99),
            queue_bytes=sum_gauge("queue_bytes"),
            slow_closes=round(self._new_counts.get("closes:3001", 0.0)),
            backlog=max((backlog.entries for backlog in backlogs), default=None),
            backlog_age_s=max((backlog.age_s for backlog in backlogs), default=None),
            write_units_per_s=compute_rate(recent, "write_units:"),
            read_units_per_s=compute_rate(recent, "read_units:"),
        )

    def build_overview(self, now_ms: int, after_ms: int) -> Overview:
        """Return the current state, and the points after `after_ms`."""
        recent = [
            received
            for received in self._latest.values()
            if now_ms - received.at_ms <= STALE_S * 1000
        ]
        queues = [queue for received in recent for queue in received.snapshot.queues]
        backlogs = [received for received in recent if received.snapshot.backlog is not None]
        newest = max(backlogs, key=lambda received: received.at_ms, default=None)
        recent_s = max(1, len(self._counts)) * EVERY_S
        chats = list_top_chats(self._chats, CHATS_MAX)
        return Overview(
            now_ms=now_ms,
            every_ms=EVERY_MS,
            points=[point for point in self._points if point.at_ms > after_ms],
            processes=[
                _make_process(received, now_ms)
                for received in sorted(self._latest.values(), key=_sort_key)
            ],
            top_chats=[BusyChat(chat, n, round(n / recent_s, 2)) for chat, n in chats],
            slow=list(reversed(self._slow)),
            queues=sorted(queues, key=lambda queue: -queue.waiting_bytes)[:QUEUES_MAX],
            backlog=newest.snapshot.backlog if newest is not None else None,
            units=self._list_units(recent_s),
            refused=self._list_rates("sends:", recent_s, without=("ok", "dup")),
            limited=self._list_rates("limited:", recent_s),
            closes=self._list_rates("closes:", recent_s),
        )

    def _sum_counts(self, prefix: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for counts in self._counts:
            for name, amount in counts.items():
                if name.startswith(prefix):
                    label = name.removeprefix(prefix)
                    sums[label] = sums.get(label, 0.0) + amount
        return sums

    def _list_rates(
        self, prefix: str, recent_s: float, without: tuple[str, ...] = ()
    ) -> list[Count]:
        rates = [
            Count(name, round(amount / recent_s, 3))
            for name, amount in self._sum_counts(prefix).items()
            if name not in without
        ]
        return sorted(rates, key=lambda count: -count.per_s)

    def _list_units(self, recent_s: float) -> list[Units]:
        writes, reads = self._sum_counts("write_units:"), self._sum_counts("read_units:")
        units = [
            Units(
                feature,
                round(writes.get(feature, 0.0) / recent_s, 3),
                round(reads.get(feature, 0.0) / recent_s, 3),
            )
            for feature in {*writes, *reads}
        ]
        return sorted(units, key=lambda unit: (-unit.write_per_s, -unit.read_per_s, unit.feature))


def compute_rate(snapshots: Iterable[Snapshot], name: str) -> float:
    """Return a counter's rate per second. A name ending in ``:`` is a prefix: sum its counters."""
    total = 0.0
    for snapshot in snapshots:
        if name.endswith(":"):
            increase = sum(
                amount for key, amount in snapshot.counts.items() if key.startswith(name)
            )
        else:
            increase = snapshot.counts.get(name, 0.0)
        total += increase / snapshot.span_s
    return round(total, 2)


def _sort_key(received: ReceivedSnapshot) -> tuple[str, str, str, int]:
    snapshot = received.snapshot
    return snapshot.kind, snapshot.does, snapshot.host, snapshot.pid


def _make_process(received: ReceivedSnapshot, now_ms: int) -> Process:
    snapshot = received.snapshot
    loop = compute_quantile(snapshot.times.get("loop", {}), 0.99)
    return Process(
        process=received.process,
        kind=snapshot.kind,
        does=snapshot.does,
        host=snapshot.host,
        pid=snapshot.pid,
        started_ms=snapshot.started_ms,
        reported_ms=received.at_ms,
        is_stale=now_ms - received.at_ms > STALE_S * 1000,
        connections=snapshot.gauges.get("connections", 0.0),
        sends_per_s=compute_rate([snapshot], "sends:ok"),
        cpu_share=round(snapshot.counts.get("cpu_s", 0.0) / snapshot.span_s, 4),
        loop_p99_ms=None if loop is None else round(loop * 1000, 3),
    )


class Overviews:
    """Reads new snapshots on demand; concurrent requests share one read."""

    def __init__(self, source: ProcessStatsLog) -> None:
        self._source = source
        self._history = StatsHistory()
        self._entry = "0-0"
        self._reading = asyncio.Lock()

    async def get(self, after_ms: int) -> Overview:
        """Return the current state, and the points after `after_ms`.

        Guarantees:
            Cost: one Redis call per 500 snapshots that were published since the last call.

        Raises:
            Unavailable: Redis does not respond.
        """
        async with self._reading:
            while True:
                page = await self._source.list_after(self._entry, PAGE)
                for snapshot in page.snapshots:
                    self._history.add(snapshot)
                self._entry = page.entry
                if not page.has_more:
                    break
            self._history.advance(page.now_ms)
            return self._history.build_overview(page.now_ms, after_ms)
