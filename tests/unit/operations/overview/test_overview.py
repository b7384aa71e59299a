"""Figures of many processes put together: sums, percentiles, who is silent, and the bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from chatserver.errors import Unavailable
from chatserver.operations.overview.publisher import ProcessIdentity, Publisher
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


class Said(NamedTuple):
    """A snapshot on the board."""

    at_ms: int
    process: str
    snapshot: Snapshot


def received(at_ms: int, process: str, kind: Kind = "gateway", **fields: Any) -> Said:
    """A report of a process about the last two seconds."""
    return Said(START + at_ms, process, Snapshot(kind, "", "host", 1, START, 2.0, **fields))


def show(board: StatsHistory, now_ms: int, after_ms: int = 0) -> Overview:
    """The overview that an admin sees."""
    board.advance(START + now_ms)
    return board.build_overview(START + now_ms, after_ms)


def test_point_is_the_sum_of_what_each_process_said_last() -> None:
    """Gauges and rates add up, percentiles are of all values together, the backlog counts once."""
    board = StatsHistory()
    fast, slow = {0.001: 99}, {0.001: 0, 1.0: 99}
    first = {"sends:ok": 10.0, "sends:dup": 2.0, "sends:rate_limited": 4.0}
    for at_ms in (100, 2100):
        counts = first if at_ms > 2000 else {}
        gauges = {"sessions": 3.0}
        board.add(received(at_ms, "a", gauges=gauges, counts=counts, times={"delivery": fast}))
        board.add(received(at_ms, "b", gauges={"sessions": 4.0}, times={"delivery": slow}))
        for api in ("c", "d"):
            board.add(received(at_ms, api, "api", backlog=Backlog(7, 1.5)))

    point = show(board, 4000).points[-1]

    assert (point.processes, point.sessions) == (4, 7)
    assert (point.sends_per_s, point.refused_per_s) == (6, 2)
    assert point.delivery_p50_ms is not None and point.delivery_p50_ms <= 1
    assert point.delivery_p99_ms is not None and point.delivery_p99_ms > 900
    assert (point.backlog, point.backlog_age_s) == (7, 1.5)
    assert point.send_p99_ms is None


def test_process_that_says_nothing_is_stale_then_gone_and_leaves_the_sums() -> None:
    """Ten seconds count it out, sixty take its name off; the others stay."""
    board = StatsHistory()
    board.add(received(0, "dead", gauges={"sessions": 5.0}))
    seen = {}
    for at_ms in range(0, 70_000, 2000):
        board.add(received(at_ms, "well", gauges={"sessions": 1.0}))
        seen[at_ms] = show(board, at_ms + 1)

    sessions = {at_ms: found.points[-1].sessions for at_ms, found in seen.items() if found.points}
    assert (sessions[10_000], sessions[12_000]) == (6, 1)
    assert [(each.process, each.is_stale) for each in seen[12_000].processes] == [
        ("dead", True),
        ("well", False),
    ]
    assert [each.process for each in seen[62_000].processes] == ["well"]


def test_who_has_points_is_told_the_newer_ones_alone() -> None:
    """A page asks every other second, and ten minutes are long."""
    board = StatsHistory()
    for at_ms in range(0, 20_000, 2000):
        board.add(received(at_ms, "a"))

    whole = show(board, 20_000).points
    newer = show(board, 20_000, whole[-3].at_ms).points

    assert [point.at_ms for point in whole] == sorted({point.at_ms for point in whole})
    assert newer == whole[-2:]


def test_board_that_nobody_looked_at_for_long_is_bounded() -> None:
    """A day later there are ten minutes of points, without anybody in them."""
    board = StatsHistory()
    for number in range(PROCESSES_MAX + 50):
        closes = [SlowClose(f"u{number}", "d", START, 1)]
        board.add(received(0, f"p{number}", slow=closes, chats={f"c{number}": 1}))
    crowded = show(board, 1)
    later = show(board, 86_400_000)

    assert len(crowded.processes) == PROCESSES_MAX
    assert len(crowded.slow) == SLOW_SHOWN_MAX
    assert len(later.points) == POINTS_MAX
    assert later.points[-1].processes == 0
    assert later.processes == later.top_chats == []


def test_chats_and_counts_are_of_the_last_minute() -> None:
    """Earlier activity does not count; the longest queue comes first."""
    board = StatsHistory()
    board.add(received(0, "a", "worker", chats={"old": 500}, counts={"write_units:persist": 9.0}))
    for at_ms in range(2000, 64_000, 2000):
        queues = [Queue("u", "d", 5), Queue("v", "d", 9)]
        counts = {"write_units:persist": 4.0, "limited:sends": 2.0, "closes:3001": 1.0}
        board.add(received(at_ms, "a", chats={"new": 2, "other": 1}, counts=counts, queues=queues))

    found = show(board, 64_000)

    assert [(each.chat, each.messages) for each in found.top_chats] == [("new", 60), ("other", 30)]
    assert [(each.feature, each.write_per_s) for each in found.units] == [("persist", 2.0)]
    assert [(each.name, each.per_s) for each in found.limited] == [("sends", 1.0)]
    assert [each.user for each in found.queues] == ["v", "u"]
    assert found.points[-1].slow_closes == 1


@dataclasses.dataclass
class Page:
    """Of what was received."""

    snapshots: Sequence[Said]
    entry: str
    now_ms: int
    has_more: bool


class Source:
    """Ten pages, the last of which is empty."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def list_after(self, entry: str, limit: int) -> Page:
        self.asked.append(entry)
        number = min(int(entry.partition("-")[0]) + 1, 10)
        snapshots = [received(number * 2000, "a")] if number < 10 else []
        return Page(snapshots, f"{number}-0", START + 20_000, number < 10)


async def test_overviews_read_on_where_they_were() -> None:
    """All pages once; who asks again pays for what is new."""
    source = Source()
    overviews = Overviews(source)

    first = await overviews.get(0)
    await overviews.get(first.points[-1].at_ms)

    assert len(first.points) == 9
    assert source.asked == [f"{n}-0" for n in (*range(10), 10)]


class Figures:
    """Takes snapshots, or fails."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Snapshot]] = []
        self.is_away = False

    async def append(self, process: str, snapshot: Snapshot) -> None:
        if self.is_away:
            raise Unavailable("redis: not connected")
        self.taken.append((process, snapshot))


class Clock:
    """Each look is three seconds later."""

    now = 100.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.now += 3.0
        return self.now


async def test_publisher_says_who_it_is_and_what_else_there_is() -> None:
    """One name for all its life, the time since it last spoke, and the fields of its kind."""
    figures = Figures()

    async def find_more() -> dict[str, Any]:
        return {"queues": [Queue("u", "d", 1)]}

    publisher = Publisher(
        identity=ProcessIdentity("worker", "persist"),
        stats_log=figures,
        clock=Clock(),
        find_more=find_more,
    )
    await publisher.publish()
    await publisher.publish()

    (name, one), (same, _) = figures.taken
    assert name == same
    assert (one.kind, one.does, one.span_s) == ("worker", "persist", 3.0)
    assert one.queues == [Queue("u", "d", 1)]
