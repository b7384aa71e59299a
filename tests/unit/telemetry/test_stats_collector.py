"""Changes of this process's metrics since the last call."""

from __future__ import annotations

from chatserver.telemetry import metrics
from chatserver.telemetry.stats_collector import COUNTS, GAUGES, TIMES, StatsCollector


def test_collect_returns_changes_since_the_last_call() -> None:
    """Counters are by label, histograms by bucket; unchanged values are omitted."""
    collector = StatsCollector()
    metrics.PERSISTED.inc(5)
    metrics.DELIVERY_LATENCY.observe(0.3)
    collector.collect()

    metrics.SENDS.labels("ok").inc(3)
    metrics.HTTP_REQUESTS.labels("/a", "200").inc()
    metrics.HTTP_REQUESTS.labels("/b", "200").inc()
    metrics.DELIVERY_LATENCY.observe(0.003, 2)
    metrics.DELIVERY_LATENCY.observe(99)
    metrics.LOOP_LAG.observe(0.002)
    metrics.UNDELIVERED.labels("0").set(2)
    metrics.UNDELIVERED.labels("1").set(3)
    stats = collector.collect()
    metrics.UNDELIVERED.clear()
    again = collector.collect()

    assert stats.counts.pop("cpu_s") > 0
    assert stats.counts == {"sends:ok": 3, "http:200": 2}
    assert stats.gauges["undelivered_chats"] == 5
    assert stats.times == {
        "delivery": {0.002: 0, 0.005: 2, 10.0: 0, float("inf"): 1},
        "loop": {0.001: 0, 0.005: 1},
    }
    assert again.counts.keys() <= {"cpu_s"}
    assert again.times == {}
    assert "undelivered_chats" not in again.gauges


def test_collect_reads_every_listed_metric() -> None:
    """This test fails if a metric is renamed or loses its label."""
    collector = StatsCollector()
    for metric, label in COUNTS.values():
        (metric.labels(*["x"] * len(metric._labelnames)) if metric._labelnames else metric).inc()
        assert not label or label in metric._labelnames
    for histogram in TIMES.values():
        histogram.observe(0.01)
    for gauge in GAUGES.values():
        (gauge.labels("7") if gauge._labelnames else gauge).set(7)

    stats = collector.collect()
    metrics.UNDELIVERED.clear()

    assert {name.partition(":")[0] for name in stats.counts} >= COUNTS.keys()
    assert stats.times.keys() == TIMES.keys()
    assert stats.gauges.keys() == GAUGES.keys()
