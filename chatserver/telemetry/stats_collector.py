"""Collector of this process's Prometheus metrics for the admin page."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from chatserver.telemetry import metrics
from chatserver.telemetry.process_stats import Buckets

# Maps names in the snapshot to metrics. If a metric has labels, its values are summed.
GAUGES: Final[dict[str, Any]] = {
    "connections": metrics.CONNECTIONS,
    "sessions": metrics.SESSIONS,
    "slow_connections": metrics.SLOW_CONNECTIONS,
    "queue_bytes": metrics.SEND_QUEUE_BYTES,
    "undelivered_chats": metrics.UNDELIVERED,
    "answers": metrics.RESPONSES_RUNNING,
}
# Maps names to a metric and one of its labels. Each label value is counted separately, for example
# as ``sends:ok``. With the label "", all values are summed.
COUNTS: Final[dict[str, tuple[Any, str]]] = {
    "sends": (metrics.SENDS, "result"),
    "pushes": (metrics.PUSHES, ""),
    "persisted": (metrics.PERSISTED, ""),
    "dead_letters": (metrics.DEAD_LETTERS, ""),
    "closes": (metrics.CLOSES, "code"),
    "limited": (metrics.RATE_LIMITED, "limit"),
    "http": (metrics.HTTP_REQUESTS, "status"),
    "write_units": (metrics.DYNAMODB_WRITE_UNITS, "feature"),
    "read_units": (metrics.DYNAMODB_READ_UNITS, "feature"),
}
TIMES: Final[dict[str, Any]] = {
    "send": metrics.SEND_LATENCY,
    "delivery": metrics.DELIVERY_LATENCY,
    "persist": metrics.PERSIST_LAG,
    "loop": metrics.LOOP_LAG,
}


class StatsDelta(NamedTuple):
    """The values read by one call of `StatsCollector.collect`."""

    gauges: dict[str, float]
    counts: dict[str, float]
    times: dict[str, dict[float, int]]


class StatsCollector:
    """Reads metrics as increments since the previous read. Memory: one number per sample."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._times: dict[str, dict[float, int]] = {}

    def collect(self) -> StatsDelta:
        """Return the gauges, and the increments of counters and histograms since the last call."""
        gauges = {name: _sum_gauge(metric) for name, metric in GAUGES.items()}
        counts = {"cpu_s": time.process_time()}
        for name, (metric, label) in COUNTS.items():
            for labels, value in _iter_samples(metric, "_total"):
                key = f"{name}:{labels[label]}" if label else name
                counts[key] = counts.get(key, 0.0) + value
        times = {name: get_buckets(metric) for name, metric in TIMES.items()}
        new_values = {
            name: _find_new_values(buckets, self._times.get(name, {}))
            for name, buckets in times.items()
        }
        delta = StatsDelta(
            {name: value for name, value in gauges.items() if value},
            _find_increments(counts, self._counts),
            {name: values for name, values in new_values.items() if values},
        )
        self._counts, self._times = counts, times
        return delta


def get_buckets(histogram: Any) -> dict[float, int]:
    """Return the non-cumulative buckets of a histogram without labels."""
    buckets: dict[float, int] = {}
    below = 0
    for labels, value in _iter_samples(histogram, "_bucket"):
        buckets[float(labels["le"])] = int(value) - below
        below = int(value)
    return buckets


def _sum_gauge(gauge: Any) -> float:
    return sum(value for _, value in _iter_samples(gauge, ""))


def _iter_samples(metric: Any, suffix: str) -> Iterable[tuple[dict[str, str], float]]:
    for family in metric.collect():
        name = f"{family.name}{suffix}"
        for sample in family.samples:
            if sample.name == name:
                yield sample.labels, sample.value


def _find_increments(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    grown = ((key, value - before.get(key, 0.0)) for key, value in now.items())
    return {key: round(amount, 6) for key, amount in grown if amount > 0}


def _find_new_values(now: dict[float, int], before: Buckets) -> dict[float, int]:
    new_values: dict[float, int] = {}
    below: float | None = None
    for bound, count in now.items():
        amount = count - before.get(bound, 0)
        if amount > 0:
            if below is not None:
                new_values.setdefault(below, 0)
            new_values[bound] = amount
        below = bound
    return new_values
