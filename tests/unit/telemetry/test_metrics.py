"""The names that dashboards and alerts rest on: exported, measured, documented and bounded."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from chatserver.telemetry import metrics
from chatserver.telemetry.fast_histogram import TalliedHistogram

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "operations.md"

# What each label may hold: words of ours, a partition's number, what a store or a service of ours
# calls a thing. Another label needs a line here, and so a thought about how many values it has.
BOUNDED = {
    "code": "close codes of RFC 6455 and of ours, or `other`",
    "durability": "hot, stored",
    "end": "how an answer ended",
    "feature": "parts of the product that use DynamoDB",
    "kind": "services of pushes",
    "limit": "limits of ours",
    "name": "workers",
    "operation": "operations of DynamoDB that we use",
    "outcome": "words of ours",
    "partition": "CHAT_REDIS_PARTITIONS",
    "reason": "words of APNs that we know, or `other`",
    "result": "words of ours, error codes",
    "route": "patterns of routes",
    "shards": "powers of two up to CHAT_WARM_SHARDS_MAX",
    "source": "cache, s3",
    "stage": "stages of a connection",
    "status": "HTTP status codes",
    "table": "our tables",
    "way": "in, out",
    "what": "words of ours",
    "where": "words of ours",
    "found": "words of ours",
}


def list_metrics() -> dict[str, Any]:
    """All metrics of the module, by the names of their constants."""
    found: dict[str, Any] = {}
    for name, value in vars(metrics).items():
        some = value.items() if isinstance(value, dict) else [("", value)]
        for key, each in some:
            is_one = hasattr(each, "collect") and not isinstance(each, type)
            if is_one and each not in found.values():
                found[f"{name}.{key}" if key else name] = each
    return found


def row_of(metric: Any) -> str:
    """The document's row of a metric."""
    (family,) = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
    return f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def test_every_metric_is_in_the_table_of_the_document_and_nothing_else() -> None:
    """Names, types, labels and meanings, as Prometheus shows them, in the order of the module."""
    text = DOCUMENT.read_text()
    table = text[text.index("\n## Metrics\n") :]
    rows = re.findall(r"^\| `chat\w+` \|.*$", table[: table.index("\n## ", 5)], re.MULTILINE)

    wanted = [row_of(metric) for metric in list_metrics().values()]

    assert rows == wanted, "the table should be\n" + "\n".join(wanted)


def test_every_metric_is_exported_under_its_name() -> None:
    """Also those that have no value yet: a query for them is no mistake."""
    exported = generate_latest().decode()

    for metric in list_metrics().values():
        (family,) = metric.describe()
        suffix = "_total" if family.type == "counter" else ""
        assert f"# TYPE {family.name}{suffix} {family.type}\n" in exported


def test_every_metric_is_measured_somewhere() -> None:
    """A metric that is never set would be an empty panel."""
    words: Counter[str] = Counter()
    for folder in ("chatserver", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            words.update(re.findall(r"\b[A-Z][A-Z_]+\b", path.read_text()))

    names = {name.partition(".")[0] for name in list_metrics()}
    unused = [name for name in names if words[name] < 2]

    assert unused == []


def test_every_label_has_few_values() -> None:
    """No label is an id, nor anything that a client chose."""
    labels = {
        label for metric in list_metrics().values() for label in getattr(metric, "_labelnames", ())
    }

    assert labels <= BOUNDED.keys(), labels - BOUNDED.keys()


@pytest.mark.parametrize(("value", "times"), [(0.5, 1), (1.0, 2), (1.5, 3), (99.0, 1)])
def test_tallied_histogram_counts_as_that_of_prometheus(value: float, times: int) -> None:
    """The same values give the same text, so readers see no difference."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tallied = TalliedHistogram("x", "of x", (1, 2), ours)
    plain = Histogram("x", "of x", buckets=(1, 2), registry=theirs)

    tallied.observe(value, times)
    for _ in range(times):
        plain.observe(value)

    def lines(registry: CollectorRegistry) -> list[str]:
        text = generate_latest(registry).decode().splitlines()
        return [line for line in text if "_created" not in line]

    assert lines(ours) == lines(theirs)
