"""Metrics are exported, measured, documented, and have bounded labels."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from chatserver.telemetry import metrics
from chatserver.telemetry.fast_histogram import FastHistogram

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "operations.md"

# The possible values of each label. Before you add a label here, make sure that the
# number of its values is bounded.
BOUNDED = {
    "code": "close codes of RFC 6455 and of the protocol, or `other`",
    "durability": "hot, stored",
    "end": "how an AI response ended",
    "feature": "parts of the product that use DynamoDB",
    "kind": "push services, kinds of slots",
    "limit": "rate limits",
    "name": "workers",
    "operation": "DynamoDB operations",
    "outcome": "fixed words",
    "partition": "CHAT_REDIS_PARTITIONS",
    "reason": "known reasons of APNs, or `other`",
    "result": "fixed words, error codes",
    "route": "patterns of routes",
    "shards": "powers of two up to CHAT_WARM_SHARDS_MAX",
    "source": "cache, s3",
    "stage": "stages of a connection",
    "state": "held, waiting",
    "status": "HTTP status codes",
    "table": "table names",
    "way": "in, out",
    "what": "fixed words",
    "where": "fixed words",
    "found": "fixed words",
}


def list_metrics() -> dict[str, Any]:
    """Return all metrics of the module by the names of their constants."""
    found: dict[str, Any] = {}
    for name, value in vars(metrics).items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for key, each in entries:
            is_one = hasattr(each, "collect") and not isinstance(each, type)
            if is_one and each not in found.values():
                found[f"{name}.{key}" if key else name] = each
    return found


def row_of(metric: Any) -> str:
    """Return the row of a metric in the document."""
    (family,) = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
    return f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def test_metrics_table_of_the_document_equals_the_metrics() -> None:
    """The rows have names, types, labels and descriptions in the order of the module."""
    text = DOCUMENT.read_text()
    table = text[text.index("\n## Metrics\n") :]
    rows = re.findall(r"^\| `chat\w+` \|.*$", table[: table.index("\n## ", 5)], re.MULTILINE)

    wanted = [row_of(metric) for metric in list_metrics().values()]

    assert rows == wanted, "the table should be\n" + "\n".join(wanted)


def test_every_metric_is_exported_under_its_name() -> None:
    """Metrics without a value are exported too, so that queries for them work."""
    exported = generate_latest().decode()

    for metric in list_metrics().values():
        (family,) = metric.describe()
        suffix = "_total" if family.type == "counter" else ""
        assert f"# TYPE {family.name}{suffix} {family.type}\n" in exported


def test_every_metric_is_used_in_the_code() -> None:
    """A metric that is never set would be an empty panel in a dashboard."""
    words: Counter[str] = Counter()
    for folder in ("chatserver", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            words.update(re.findall(r"\b[A-Z][A-Z_]+\b", path.read_text()))

    names = {name.partition(".")[0] for name in list_metrics()}
    unused = [name for name in names if words[name] < 2]

    assert unused == []


def test_every_label_has_few_values() -> None:
    """No label is an id or a value chosen by a client."""
    labels = {
        label for metric in list_metrics().values() for label in getattr(metric, "_labelnames", ())
    }

    assert labels <= BOUNDED.keys(), labels - BOUNDED.keys()


@pytest.mark.parametrize(("value", "times"), [(0.5, 1), (1.0, 2), (1.5, 3), (99.0, 1)])
def test_fast_histogram_equals_the_prometheus_histogram(value: float, times: int) -> None:
    """Both export the same text for the same values."""
    fast_registry, plain_registry = CollectorRegistry(), CollectorRegistry()
    fast = FastHistogram("x", "of x", (1, 2), fast_registry)
    plain = Histogram("x", "of x", buckets=(1, 2), registry=plain_registry)

    fast.observe(value, times)
    for _ in range(times):
        plain.observe(value)

    def lines(registry: CollectorRegistry) -> list[str]:
        text = generate_latest(registry).decode().splitlines()
        return [line for line in text if "_created" not in line]

    assert lines(fast_registry) == lines(plain_registry)
