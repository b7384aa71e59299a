"""Counts and latencies of one worker process, reported once a second."""

from __future__ import annotations

import collections
from typing import Any

from chatserver.loadtest.histogram import Histogram


class Meters:
    """Counts and latencies since the last call to `pop_all`."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.histograms: dict[str, Histogram] = {}

    def record_latency(self, name: str, microseconds: int) -> None:
        histogram = self.histograms.get(name)
        if histogram is None:
            histogram = self.histograms[name] = Histogram()
        histogram.record(microseconds)

    def pop_all(self) -> dict[str, Any]:
        """Return all measurements, ready for JSON, and reset them."""
        popped = {
            "counts": dict(self.counts),
            "histograms": {
                name: histogram.to_json() for name, histogram in self.histograms.items()
            },
        }
        self.counts.clear()
        self.histograms.clear()
        return popped
