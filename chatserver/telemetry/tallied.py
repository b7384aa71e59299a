"""A histogram that costs a hot path a tenth of what `prometheus_client`'s costs it.

That one takes a lock and two more calls for each value, 1.7 µs; this one adds to a list, 0.15 µs.
It may, because one thread writes: the event loop's. A scrape reads from another one, and may see a
value in the buckets that is not in the sum yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class TalliedHistogram(Collector):
    """As a `Histogram` without labels, for one writing thread."""

    def __init__(
        self,
        name: str,
        documentation: str,
        buckets: Sequence[float],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times. From the event loop's thread only."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Say what there is, without values."""
        yield HistogramMetricFamily(self._name, self._documentation)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the values, as Prometheus counts: each bucket with all below it."""
        total, buckets = 0, []
        names = [*map(repr, map(float, self._bounds)), "+Inf"]
        for name, count in zip(names, list(self._counts), strict=True):
            total += count
            buckets.append((name, float(total)))
        yield HistogramMetricFamily(self._name, self._documentation, buckets, self._sum)
