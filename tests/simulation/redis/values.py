"""Data types of the simulated Redis: sorted sets, streams, and copies of values."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

EntryId = tuple[int, int]


class RedisError(Exception):
    """An error reply."""


class Status(str):
    """A status reply, such as OK."""


WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class SortedSet:
    """Members with scores, ordered by score, then by member."""

    __slots__ = ("order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self.scores)

    def copy(self) -> SortedSet:
        copied = SortedSet()
        copied.scores = dict(self.scores)
        copied.order = list(self.order)
        return copied

    def put(self, member: bytes, score: float) -> None:
        self.remove(member)
        self.scores[member] = score
        insort(self.order, (score, member))

    def remove(self, member: bytes) -> bool:
        score = self.scores.pop(member, None)
        if score is None:
            return False
        del self.order[bisect_left(self.order, (score, member))]
        return True


class Group:
    """A consumer group of a stream."""

    __slots__ = ("last", "pending")

    def __init__(self, last: EntryId) -> None:
        self.last = last
        # Entry id → consumer, delivery time (ms), number of deliveries.
        self.pending: dict[EntryId, tuple[bytes, int, int]] = {}

    def copy(self) -> Group:
        copied = Group(self.last)
        copied.pending = dict(self.pending)
        return copied


class Stream:
    """Entries by id."""

    __slots__ = ("entries", "groups", "ids", "last")

    def __init__(self) -> None:
        self.ids: list[EntryId] = []
        self.entries: list[list[bytes]] = []
        self.last: EntryId = (0, 0)
        self.groups: dict[bytes, Group] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def copy(self) -> Stream:
        copied = Stream()
        copied.ids = list(self.ids)
        copied.entries = list(self.entries)
        copied.last = self.last
        copied.groups = {name: group.copy() for name, group in self.groups.items()}
        return copied

    def append(self, entry: EntryId, fields: list[bytes]) -> None:
        self.ids.append(entry)
        self.entries.append(fields)
        self.last = entry

    def delete(self, entry: EntryId) -> bool:
        at = bisect_left(self.ids, entry)
        if at == len(self.ids) or self.ids[at] != entry:
            return False
        del self.ids[at]
        del self.entries[at]
        return True

    def trim(self, count: int) -> int:
        """Remove the oldest entries."""
        del self.ids[:count]
        del self.entries[:count]
        return count

    def find(self, low: EntryId, high: EntryId) -> range:
        """Return the positions of the entries between two ids, inclusive."""
        return range(bisect_left(self.ids, low), bisect_right(self.ids, high))


def copy_value(value: Any) -> Any:
    """Return a copy of a value."""
    return value if isinstance(value, bytes) else value.copy()


def format_id(entry: EntryId) -> bytes:
    return b"%d-%d" % entry


def parse_id(text: bytes, missing: int = 0) -> EntryId:
    """Parse an entry id; `missing` is the number after a missing ``-``."""
    ms, separator, number = text.partition(b"-")
    try:
        return int(ms), int(number) if separator else missing
    except ValueError:
        raise RedisError("ERR Invalid stream ID specified as stream command argument") from None


def parse_int(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise RedisError("ERR value is not an integer or out of range") from None


def parse_float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        raise RedisError("ERR value is not a valid float") from None


def format_float(value: float) -> bytes:
    if value == int(value) and abs(value) < 1e17:
        return b"%d" % int(value)
    if value in (float("inf"), float("-inf")):
        return b"inf" if value > 0 else b"-inf"
    return repr(value).encode()
