"""Process statistics published every two seconds for the admin page. This module does no I/O.

Each process publishes snapshots. A snapshot contains the current gauges, and how much counters and
histograms have increased since the previous snapshot, so snapshots of several processes can be
summed.
"""

from __future__ import annotations

import collections
import heapq
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from chatserver.telemetry.heavy_hitters import HeavyHitters

EVERY_S: Final = 2.0
KEPT_S: Final = 600.0  # retention of snapshots
STALE_S: Final = 10.0  # a process without a snapshot for this long is left out of the sums
GONE_S: Final = 60.0  # a process without a snapshot for this long is left out of the process list
CHATS_MAX: Final = 20  # number of chats in a snapshot: the busiest ones
CANDIDATES_MAX: Final = 200  # maximum chats that are counted to find the busiest ones
SLOW_MAX: Final = 20  # number of closed slow connections in a snapshot: the newest ones
QUEUES_MAX: Final = 10  # number of send queues in a snapshot: the longest ones
PARTITIONS_MAX: Final = 10  # number of backlogs in a snapshot: the longest ones

Kind = Literal["gateway", "worker", "api"]
# Maps the upper bound of each histogram bucket to its number of values (not cumulative). Empty
# buckets are omitted, except directly below a non-empty one, whose lower bound they give.
Buckets = Mapping[float, int]


class SlowClose(msgspec.Struct, frozen=True):
    """A connection that was closed because its client did not read; `at_ms` is in Unix ms."""

    user: str
    device: str
    at_ms: int
    waiting_bytes: int


class Queue(msgspec.Struct, frozen=True):
    """The send queue of a session whose client currently reads too slowly."""

    user: str
    device: str
    waiting_bytes: int


class Waiting(msgspec.Struct, frozen=True):
    """A partition's backlog: its number of entries, and the age of the oldest entry."""

    partition: int
    entries: int
    age_s: float


class Backlog(msgspec.Struct, frozen=True):
    """The backlogs of all partitions; `worst` contains the longest ones."""

    entries: int
    age_s: float
    worst: list[Waiting] = []


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process's statistics. `counts` and `times` cover the last `span_s` seconds."""

    kind: Kind
    does: str  # names of the workers in this process; empty if `kind` is not "worker"
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
    """Counts stored messages by chat. Memory: bounded, see `HeavyHitters`."""

    def __init__(self) -> None:
        self._sums = HeavyHitters(CANDIDATES_MAX)

    def add(self, chats: Iterable[str]) -> None:
        """Count one message for each item of `chats`."""
        for chat, count in collections.Counter(chats).items():
            self._sums.add(chat, count)

    def drain(self) -> dict[str, int]:
        """Return the message counts of the busiest chats since the last call."""
        sums, self._sums = self._sums.sums, HeavyHitters(CANDIDATES_MAX)
        busiest = heapq.nlargest(CHATS_MAX, sums.items(), key=operator.itemgetter(1))
        return {chat: round(count) for chat, count in busiest}


def add_buckets(target: dict[float, int], increments: Buckets) -> None:
    """Add `increments` to the counts in `target`. The two histograms may have different bounds."""
    for bound, count in increments.items():
        target[bound] = target.get(bound, 0) + count


def compute_quantile(buckets: Buckets, share: float) -> float | None:
    """Return the quantile for `share` (0 to 1); None if there are no values.

    Values are assumed to be distributed evenly within a bucket, as in Prometheus. Values above the
    last finite bound count as that bound.
    """
    total = sum(buckets.values())
    if not total:
        return None
    rank, below, low = share * total, 0, 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if below + count >= rank and count:
            if math.isinf(bound):
                return low
            return low + (bound - low) * max(0.0, rank - below) / count
        below += count
        low = bound
    return low


def list_top_chats(counts: Iterable[Mapping[str, int]], limit: int) -> list[tuple[str, int]]:
    """Return the `limit` chats with the largest total counts, in descending order."""
    sums: dict[str, int] = {}
    for counted_chats in counts:
        for chat, count in counted_chats.items():
            sums[chat] = sums.get(chat, 0) + count
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:limit]
