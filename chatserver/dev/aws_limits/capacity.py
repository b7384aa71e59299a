"""Capacity of partitions: write and read units per second, with a small burst.

AWS limits each partition to 1,000 write units and 3,000 read units a second. Here, each partition
key value is a separate partition, as after DynamoDB has split a hot partition. Each partition is a
token bucket that holds up to `burst_s` seconds' worth of units.

A request is accepted while units are left. It is charged when it completes, because the units of a
Query are not known earlier. So a request may exceed the limit; later requests are throttled until
the bucket is above zero again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

Access = Literal["write", "read"]
# Name of a table or of an index (`<table>/<index>`), and a value of its partition key.
Partition = tuple[str, str]

PARTITIONS_MAX: Final = 50_000  # maximum token buckets; then unused buckets are removed


class _Bucket(msgspec.Struct):
    units: float
    at: float


class PartitionLimits:
    """The units left in each partition. `clock` returns seconds."""

    def __init__(
        self, write_units: float, read_units: float, burst_s: float, clock: Callable[[], float]
    ) -> None:
        self._rates: dict[Access, float] = {"write": write_units, "read": read_units}
        self._burst_s = burst_s
        self._clock = clock
        self._buckets: dict[tuple[Access, Partition], _Bucket] = {}

    def has_room(self, access: Access, partition: Partition) -> bool:
        """Return whether the partition has units left."""
        return self._refill(access, partition).units > 0

    def charge(self, access: Access, partition: Partition, units: float) -> None:
        """Subtract the units of a completed request."""
        self._refill(access, partition).units -= units

    def _refill(self, access: Access, partition: Partition) -> _Bucket:
        now, rate = self._clock(), self._rates[access]
        most = rate * self._burst_s
        if len(self._buckets) >= PARTITIONS_MAX:
            self._remove_full(now)
        bucket = self._buckets.setdefault((access, partition), _Bucket(most, now))
        bucket.units = min(most, bucket.units + (now - bucket.at) * rate)
        bucket.at = now
        return bucket

    def _remove_full(self, now: float) -> None:
        for name, bucket in list(self._buckets.items()):
            rate = self._rates[name[0]]
            if bucket.units + (now - bucket.at) * rate >= rate * self._burst_s:
                del self._buckets[name]


def split_units(total: float, exact_units: Sequence[float | None]) -> list[float]:
    """Divide the capacity units of a request among its actions, one per item.

    An action whose units are known gets these, and the other actions share the rest equally. If the
    units of all actions are known, `total` is divided in proportion to them.
    """
    sizes = [units for units in exact_units if units is not None]
    unknown = len(exact_units) - len(sizes)
    if not unknown:
        whole = sum(sizes)
        return [total * units / whole if whole else total / len(exact_units) for units in sizes]
    share = max(0.0, total - sum(sizes)) / unknown
    return [share if units is None else units for units in exact_units]
