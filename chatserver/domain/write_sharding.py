"""Write sharding: distribution of a busy chat's entries over partitions, by time. No I/O.

A DynamoDB partition accepts about 1,000 write units per second. A chat that needs more has a
*layout*: a list of time ranges (periods), each with a number of shards. In a period with one
shard, and in a chat without a layout, entries are in partition ``<chat>``. In other periods they
are in partitions ``<chat>#<n>``.

Invariant: the layout and an entry's ts determine its partition. New periods begin after all
existing entries, so entries never move.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from chatserver.errors import CorruptData

T = TypeVar("T")

SHARDS_MAX: Final = 64
PERIODS_MAX: Final = 32
# The number of shards is reduced only if this many of the `PERIODS_MAX` periods stay unused, so
# that it can be increased again.
PERIODS_RESERVED: Final = 6
_BITS: Final = 64
_MASK: Final = (1 << _BITS) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15  # Fibonacci hash multiplier: 2**64 divided by the golden ratio


class ShardingPeriod(NamedTuple):
    """A sharding period: the number of shards from `from_ts` until the next period begins."""

    from_ts: int
    shards: int


class ShardFloor(NamedTuple):
    """The minimum number of shards for a chat until `until_ts`."""

    until_ts: int
    shards: int

    def encode(self) -> str:
        return f"{self.until_ts}:{self.shards}"


def parse_floor(text: str) -> ShardFloor:
    """Parse an encoded `ShardFloor`.

    Raises:
        CorruptData: the text is not an encoded `ShardFloor`.
    """
    try:
        until_ts, shards = map(int, text.split(":"))
    except ValueError as exc:
        raise CorruptData(f"shards: {text!r} is not a minimum number of shards") from exc
    if not is_shards(shards):
        raise CorruptData(f"shards: {text!r} is not a minimum number of shards")
    return ShardFloor(until_ts, shards)


class PeriodRange(NamedTuple):
    """A ts range in one sharding period, `low` to `high` inclusive, and its partitions."""

    low: int
    high: int
    partitions: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """A chat's sharding periods, ascending. Before the first period, there is one shard."""

    periods: tuple[ShardingPeriod, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the chat has ever been sharded."""
        return bool(self.periods)

    @property
    def shards(self) -> int:
        """The newest number of shards, which may apply only from a future ts (`from_ts`)."""
        return self.periods[-1].shards if self.periods else 1

    @property
    def from_ts(self) -> int:
        """The ts from which `shards` applies; 0 if the chat was never sharded."""
        return self.periods[-1].from_ts if self.periods else 0

    def get_shards_at(self, ts: int) -> int:
        """Return the number of shards for entries with this ts."""
        index = bisect.bisect_right(self.periods, ts, key=lambda period: period.from_ts)
        return self.periods[index - 1].shards if index else 1

    def split_by_period(
        self, chat: str, low: int, high: int, *, is_ascending: bool
    ) -> list[PeriodRange]:
        """Split ts range ``[low, high]`` by sharding period, in ascending or descending order."""
        periods = (ShardingPeriod(0, 1), *self.periods)
        ranges: list[PeriodRange] = []
        for number, (from_ts, shards) in enumerate(periods):
            is_last = number + 1 == len(periods)
            end = high if is_last else min(high, periods[number + 1].from_ts - 1)
            if (begin := max(low, from_ts)) <= end:
                ranges.append(PeriodRange(begin, end, partitions(chat, shards)))
        return ranges if is_ascending else ranges[::-1]

    def encode(self) -> str:
        return ",".join(f"{from_ts}:{shards}" for from_ts, shards in self.periods)


UNSHARDED: Final = Layout()


def parse_layout(text: str) -> Layout:
    """Parse a layout.

    Raises:
        CorruptData: the text is not a shard layout.
    """
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        periods = tuple(ShardingPeriod(int(from_ts), int(shards)) for from_ts, shards in pairs)
    except ValueError as exc:
        raise CorruptData(f"shards: {text!r} is not a shard layout") from exc
    is_ascending = all(a.from_ts < b.from_ts for a, b in itertools.pairwise(periods))
    are_shards = all(is_shards(period.shards) for period in periods)
    if not (is_ascending and are_shards and periods[0].from_ts > 0):
        raise CorruptData(f"shards: {text!r} is not a shard layout")
    return Layout(periods)


def is_shards(number: int) -> bool:
    """Return whether a number of shards is valid: a power of two, at most `SHARDS_MAX`."""
    return 1 <= number <= SHARDS_MAX and number & (number - 1) == 0


def get_shard(ts: int, shards: int) -> int:
    """Return the shard of an entry: a hash of its ts, which balances any write pattern."""
    mixed = ts * _GOLDEN & _MASK
    mixed = (mixed ^ mixed >> 32) * _GOLDEN & _MASK
    return mixed * shards >> _BITS


def partitions(chat: str, shards: int) -> tuple[str, ...]:
    """Return the DynamoDB partition keys of a chat that has `shards` shards."""
    return (chat,) if shards == 1 else tuple(f"{chat}#{n}" for n in range(shards))


def get_partition_chat(partition: str) -> str:
    chat, mark, number = partition.rpartition("#")
    return chat if mark and number.isdecimal() else partition


@dataclasses.dataclass(frozen=True, slots=True)
class Layouts:
    """Layouts and minimum shard counts (`floors`) by chat; most chats have neither."""

    of_chats: Mapping[str, Layout] = dataclasses.field(default_factory=dict)
    floors: Mapping[str, ShardFloor] = dataclasses.field(default_factory=dict)

    def of(self, chat: str) -> Layout:
        return self.of_chats.get(chat, UNSHARDED)

    def get_shards_min(self, chat: str, ts: int) -> int:
        """Return the minimum number of shards when a chat is resharded at `ts`; 1 by default."""
        floor = self.floors.get(chat)
        return 1 if floor is None or floor.until_ts < ts else floor.shards

    def get_partition(self, chat: str, ts: int) -> str:
        """Return the DynamoDB partition key of a chat's entry with this `ts`."""
        layout = self.of_chats.get(chat)
        if layout is None or (shards := layout.get_shards_at(ts)) == 1:
            return chat
        return f"{chat}#{get_shard(ts, shards)}"


class ShardMerge(Generic[T]):
    """Merge of row streams, such as one per shard, that are sorted by ts.

    Repeat until `upto` is None: read each of `list_unread_streams`, add its rows with `add_rows`,
    then call `pop_rows`.
    """

    def __init__(self, streams: int, *, is_ascending: bool) -> None:
        self._sign = 1 if is_ascending else -1
        self._upto: list[int | None] = [-(1 << _BITS)] * streams  # None: the stream has ended
        self._buffered = [0] * streams
        self._heap: list[tuple[int, int, T]] = []

    @property
    def upto(self) -> int | None:
        """The ts up to which all streams have been read; None if all streams have ended."""
        bound = self._get_known_bound()
        return None if bound is None else bound * self._sign

    @property
    def has_rows(self) -> bool:
        """True if `pop_rows` can return a row."""
        bound = self._get_known_bound()
        return bool(self._heap) and (bound is None or self._heap[0][0] <= bound)

    def _get_known_bound(self) -> int | None:
        return min((upto for upto in self._upto if upto is not None), default=None)

    def list_unread_streams(self) -> list[int]:
        """Return the streams to read next: those that have not ended and have no buffered rows."""
        return [
            n
            for n, (upto, buffered) in enumerate(zip(self._upto, self._buffered, strict=True))
            if upto is not None and not buffered
        ]

    def add_rows(self, stream: int, rows: Iterable[tuple[int, T]], upto: int | None) -> None:
        """Add the next rows of a stream that has been read up to ts `upto` (None: to its end)."""
        for ts, row in rows:
            heapq.heappush(self._heap, (ts * self._sign, stream, row))
            self._buffered[stream] += 1
        self._upto[stream] = None if upto is None else upto * self._sign

    def pop_rows(self, count: int) -> list[tuple[int, T]]:
        """Remove and return up to `count` of the next rows, as `(ts, row)`."""
        bound = self._get_known_bound()
        rows: list[tuple[int, T]] = []
        while self._heap and len(rows) < count and (bound is None or self._heap[0][0] <= bound):
            key, stream, row = heapq.heappop(self._heap)
            self._buffered[stream] -= 1
            rows.append((key * self._sign, row))
        return rows
