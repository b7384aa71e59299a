"""The overview of all processes: sums, percentiles, stale processes and bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from chatserver.errors import Unavailable
from chatserver.operations.overview.publisher import Publisher
from chatserver.operations.overview.service import (
    POINTS_MAX,
    PROCESSES_MAX,
    SLOW_SHOWN_MAX,
    Overview,
    Overviews,
    StatsHistory,
)
from chatserver.telemetry.process_stats import Backlog, Kind, Queue, SlowClose, Snapshot

START = 1_000_000


class Received(NamedTuple):
    """A snapshot received from a process."""

    at_ms: int
    process: str
    snapshot: Snapshot


def received(at_ms: int, process: str, kind: Kind = "gateway", **fields: Any) -> Received:
    return Received(START + at_ms, process, Snapshot(kind, "", "host", 1, START, 2.0, **fields))


def show(history: StatsHistory, now_ms: int, after_ms: int = 0) -> Overview:
    history.advance(START + now_ms)
    return history.build_overview(START + now_ms, after_ms)


def test_point_is_the_sum_of_the_last_snapshots() -> None:
    """Gauges and rates are summed, percentiles cover all values, and the backlog is not summed."""
    history = StatsHistory()
    fast, slow = {0.001: 99}, {0.001: 0, 1.0: 99}
    first = {"sends:ok": 10.0, "sends:dup": 2.0, "sends:rate_limited": 4.0}
    for at_ms in (100, 2100):
        counts = first if at_ms > 2000 else {}
        gauges = {"sessions": 3.0}
        history.add(received(at_ms, "a", gauges=gauges, counts=counts, times={"delivery": fast}))
        history.add(received(at_ms, "b", gauges={"sessions": 4.0}, times={"delivery": slow}))
        for api in ("c", "d"):
            history.add(received(at_ms, api, "api", backlog=Backlog(7, 1.5)))

    point = show(history, 4000).points[-1]

    assert (point.processes, point.sessions) == (4, 7)
    assert (point.sends_per_s, point.refused_per_s) == (6, 2)
    assert point.delivery_p50_ms is not None and point.delivery_p50_ms <= 1
    assert point.delivery_p99_ms is not None and point.delivery_p99_ms > 900
    assert (point.backlog, point.backlog_age_s) == (7, 1.5)
    assert point.send_p99_ms is None


def test_silent_process_becomes_stale_and_is_then_removed() -> None:
    """After 10 seconds it leaves the sums, after 60 the list; other processes stay."""
    history = StatsHistory()
    history.add(received(0, "dead", gauges={"sessions": 5.0}))
    seen = {}
    for at_ms in range(0, 70_000, 2000):
        history.add(received(at_ms, "alive", gauges={"sessions": 1.0}))
        seen[at_ms] = show(history, at_ms + 1)

    sessions = {at_ms: found.points[-1].sessions for at_ms, found in seen.items() if found.points}
    assert (sessions[10_000], sessions[12_000]) == (6, 1)
    assert [(each.process, each.is_stale) for each in seen[12_000].processes] == [
        ("dead", True),
        ("alive", False),
    ]
    assert [each.process for each in seen[62_000].processes] == ["alive"]


def test_overview_after_a_point_contains_only_newer_points() -> None:
    """A page polls every two seconds and does not need ten minutes of points again."""
    history = StatsHistory()
    for at_ms in range(0, 20_000, 2000):
        history.add(received(at_ms, "a"))

    whole = show(history, 20_000).points
    newer = show(history, 20_000, whole[-3].at_ms).points

    assert [point.at_ms for point in whole] == sorted({point.at_ms for point in whole})
    assert newer == whole[-2:]


def test_history_with_many_processes_is_bounded() -> None:
    """A day later there are ten minutes of points without processes."""
    history = StatsHistory()
    for number in range(PROCESSES_MAX + 50):
        closes = [SlowClose(f"u{number}", "d", START, 1)]
        history.add(received(0, f"p{number}", slow=closes, chats={f"c{number}": 1}))
    full = show(history, 1)
    later = show(history, 86_400_000)

    assert len(full.processes) == PROCESSES_MAX
    assert len(full.slow) == SLOW_SHOWN_MAX
    assert len(later.points) == POINTS_MAX
    assert later.points[-1].processes == 0
    assert later.processes == later.top_chats == []


def test_chats_and_counts_cover_the_last_minute() -> None:
    """Earlier activity is not included; the longest queue comes first."""
    history = StatsHistory()
    history.add(received(0, "a", "worker", chats={"old": 500}, counts={"write_units:persist": 9.0}))
    for at_ms in range(2000, 64_000, 2000):
        queues = [Queue("u", "d", 5), Queue("v", "d", 9)]
        counts = {"write_units:persist": 4.0, "limited:sends": 2.0, "closes:3001": 1.0}
        history.add(
            received(at_ms, "a", chats={"new": 2, "other": 1}, counts=counts, queues=queues)
        )

    found = show(history, 64_000)

    assert [(each.chat, each.messages) for each in found.top_chats] == [("new", 60), ("other", 30)]
    assert [(each.feature, each.write_per_s) for each in found.units] == [("persist", 2.0)]
    assert [(each.name, each.per_s) for each in found.limited] == [("sends", 1.0)]
    assert [each.user for each in found.queues] == ["v", "u"]
    assert found.points[-1].slow_closes == 1


@dataclasses.dataclass
class Page:
    snapshots: Sequence[Received]
    entry: str
    now_ms: int
    has_more: bool


class Source:
    """A source of ten pages; the last one is empty."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def list_after(self, entry: str, limit: int) -> Page:
        self.requested.append(entry)
        number = min(int(entry.partition("-")[0]) + 1, 10)
        snapshots = [received(number * 2000, "a")] if number < 10 else []
        return Page(snapshots, f"{number}-0", START + 20_000, number < 10)


async def test_overviews_read_each_page_once() -> None:
    """A second request reads only new pages."""
    source = Source()
    overviews = Overviews(source)

    first = await overviews.get(0)
    await overviews.get(first.points[-1].at_ms)

    assert len(first.points) == 9
    assert source.requested == [f"{n}-0" for n in (*range(10), 10)]


class FakeStatsLog:
    """Records snapshots, or fails."""

    def __init__(self) -> None:
        self.snapshots: list[tuple[str, Snapshot]] = []
        self.is_down = False

    async def append(self, process: str, snapshot: Snapshot) -> None:
        if self.is_down:
            raise Unavailable("redis: not connected")
        self.snapshots.append((process, snapshot))


class Clock:
    """A clock that advances three seconds at each reading."""

    now = 100.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.now += 3.0
        return self.now


async def test_publisher_sends_its_identity_and_extra_fields() -> None:
    """The name never changes; a snapshot has the time since the last one and extra fields."""
    stats_log = FakeStatsLog()

    async def find_more() -> dict[str, Any]:
        return {"queues": [Queue("u", "d", 1)]}

    publisher = Publisher(
        kind="worker",
        does="persist",
        stats_log=stats_log,
        clock=Clock(),
        find_more=find_more,
    )
    await publisher.publish()
    await publisher.publish()

    (name, snapshot), (second_name, _) = stats_log.snapshots
    assert name == second_name
    assert (snapshot.kind, snapshot.does, snapshot.span_s) == ("worker", "persist", 3.0)
    assert snapshot.queues == [Queue("u", "d", 1)]
