"""Mergeable latency histogram with log-linear buckets, for any range; relative error below 1/128.

Same scheme as HdrHistogram, with a simple JSON format (decision 0029). Each value below 256 has its
own bucket; above that, each power-of-two range has 128 buckets. Bucket `index` holds

    index < 256     the value `index`
    else            ``(index % 128 + 128) << (index // 128 - 1)`` up to the start of the next bucket
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

BITS: Final = 7
_HALF: Final = 1 << BITS
QUANTILES: Final[Mapping[str, float]] = {
    "p50": 0.5,
    "p90": 0.9,
    "p99": 0.99,
    "p99_9": 0.999,
    "p99_99": 0.9999,
}


class Histogram:
    """Counts of values: non-negative integers, here microseconds."""

    __slots__ = ("counts", "max", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        self.max = 0

    def record(self, value: int) -> None:
        """Count a value; a negative value (clock skew) counts as 0."""
        if value < 0:
            value = 0
        shift = value.bit_length() - (BITS + 1)
        index = value if shift <= 0 else (shift << BITS) + (value >> shift)
        self.counts[index] = self.counts.get(index, 0) + 1
        self.total += 1
        if value > self.max:
            self.max = value

    def add(self, other: Histogram) -> None:
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.total += other.total
        self.max = max(self.max, other.max)

    def get_quantile(self, share: float) -> int | None:
        """Return the value that `share` of all values do not exceed; None if empty."""
        return next(iter(self.get_quantiles((share,))), None)

    def get_quantiles(self, shares: Iterable[float]) -> list[int]:
        """Return the quantile for each of the ascending `shares` (nearest rank); [] if empty."""
        quantiles: list[int] = []
        cumulative = 0
        buckets = iter(sorted(self.counts.items()))
        highest = 0
        for share in shares if self.total else ():
            rank = min(self.total, max(1, -int(-share * self.total // 1)))
            while cumulative < rank:
                index, count = next(buckets)
                cumulative += count
                highest = min(self.max, get_bucket_max(index))
            quantiles.append(highest)
        return quantiles

    def summarize_ms(self) -> dict[str, float | int | None]:
        """Return the count, and the quantiles (`QUANTILES`) and maximum in milliseconds."""
        if not self.total:
            return {"count": 0, **dict.fromkeys([*QUANTILES, "max"])}
        values = map(to_ms, self.get_quantiles(QUANTILES.values()))
        times = dict(zip(QUANTILES, values, strict=True))
        return {"count": self.total, **times, "max": to_ms(self.max)}

    def to_json(self) -> dict[str, Any]:
        return {
            "unit": "us",
            "bits": BITS,
            "max": self.max,
            "counts": [[index, count] for index, count in sorted(self.counts.items())],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Histogram:
        histogram = cls()
        histogram.counts = dict(map(tuple, fields["counts"]))
        histogram.total = sum(histogram.counts.values())
        histogram.max = fields["max"]
        return histogram


def get_bucket_max(index: int) -> int:
    if index < 2 * _HALF:
        return index
    shift = (index >> BITS) - 1
    return (((index & (_HALF - 1)) + _HALF + 1) << shift) - 1


def to_ms(microseconds: int) -> float:
    return round(microseconds / 1000, 3)
