"""What a process says of itself every other second, and what a page makes of it. No I/O.

A snapshot holds the gauges as they are, and of counters and histograms what came in since the one
before: so snapshots of many processes add up, and who reads them needs no memory of the past.
"""

from __future__ import annotations

import collections
import heapq
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from chatserver.domain.toplists import TopList

EVERY_S: Final = 2.0
KEPT_S: Final = 600.0  # so much of the past there is
STALE_S: Final = 10.0  # who has said nothing for so long counts no more
GONE_S: Final = 60.0  # and is not named any more
CHATS_MAX: Final = 20  # busiest ones, in one snapshot
HELD_MAX: Final = 200  # of which they are chosen
SLOW_MAX: Final = 20  # clients closed as slow, in one snapshot; the newest
QUEUES_MAX: Final = 10  # longest queues, in one snapshot
PARTITIONS_MAX: Final = 10  # fullest backlogs, in one snapshot

Kind = Literal["gateway", "worker", "api"]
# Upper bound → how many values are not above it, and above the bound before. Of empty buckets there
# are only those right below one that is not: they say where that begins.
Buckets = Mapping[float, int]


class SlowClose(msgspec.Struct, frozen=True):
    """A client that was closed because it did not take what was sent. `at_ms` since 1970."""

    user: str
    device: str
    at_ms: int
    waiting_bytes: int


class Queue(msgspec.Struct, frozen=True):
    """A session whose client does not take all that is sent, now."""

    user: str
    device: str
    waiting_bytes: int


class Waiting(msgspec.Struct, frozen=True):
    """The backlog of a partition: entries, and how long the oldest one has been waiting."""

    partition: int
    entries: int
    age_s: float


class Backlog(msgspec.Struct, frozen=True):
    """The backlogs of all partitions; `worst`: the longest ones."""

    entries: int
    age_s: float
    worst: list[Waiting] = []


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process, at one moment. `counts` and `times` are of the last `span_s` seconds."""

    kind: Kind
    does: str  # which workers; "" for the others
    host: str
    pid: int
    started_ms: int
    span_s: float
    gauges: dict[str, float] = {}
    counts: dict[str, float] = {}
    times: dict[str, dict[float, int]] = {}
    chats: dict[str, int] = {}
    slow: list[SlowClose] = []
    queues: list[Queue] = []
    backlog: Backlog | None = None


class BusyChats:
    """Counts what is stored of which chat. Memory: bounded, see `TopList`."""

    def __init__(self) -> None:
        self._sums = TopList(HELD_MAX)

    def add(self, chats: Iterable[str]) -> None:
        """Count a message of each of these."""
        for chat, count in collections.Counter(chats).items():
            self._sums.add(chat, count)

    def take(self) -> dict[str, int]:
        """Return the busiest chats since the last call."""
        sums, self._sums = self._sums.sums, TopList(HELD_MAX)
        busiest = heapq.nlargest(CHATS_MAX, sums.items(), key=operator.itemgetter(1))
        return {chat: round(count) for chat, count in busiest}


def add_buckets(into: dict[float, int], more: Buckets) -> None:
    """Pour a histogram into another one; the bounds may differ."""
    for bound, count in more.items():
        into[bound] = into.get(bound, 0) + count


def quantile(buckets: Buckets, share: float) -> float | None:
    """Return the value that a share of all values does not exceed; None without values.

    Within a bucket values are taken to be spread evenly, as Prometheus does. What is above the
    last bound counts as that bound.
    """
    total = sum(buckets.values())
    if not total:
        return None
    wanted, below, low = share * total, 0, 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if below + count >= wanted and count:
            if math.isinf(bound):
                return low
            return low + (bound - low) * max(0.0, wanted - below) / count
        below += count
        low = bound
    return low


def top_chats(counts: Iterable[Mapping[str, int]], limit: int) -> list[tuple[str, int]]:
    """Return the chats with the greatest sums, the greatest first."""
    sums: dict[str, int] = {}
    for each in counts:
        for chat, count in each.items():
            sums[chat] = sums.get(chat, 0) + count
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:limit]
