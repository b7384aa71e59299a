"""Chart definitions of a load test result. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from chatserver.loadtest.histogram import Histogram
from chatserver.loadtest.report.svg_charts import Chart, ChartLine, Point

_QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)
_TICKS: Final = (
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
)
_TIME: Final = "seconds since the start"
_LATENCIES: Final = ("ack", "delivered", "page", "resume", "connect")


def build_charts(result: dict[str, Any]) -> list[Chart]:
    rows = result["series"]
    charts = [
        _build_percentile_chart(result),
        Chart(
            "Actions",
            "Actions offered and completed per second.",
            _TIME,
            "a second",
            _build_lines(rows, ("offered", "acked", "pages", "connects")),
        ),
        Chart(
            "Deliveries",
            "Events received per second, and events still missing at the end of the second.",
            _TIME,
            "events",
            _build_lines(rows, ("delivered", "missing")),
        ),
        Chart(
            "Latency over time",
            "Median and 99th percentile per second, from the scheduled time; log scale.",
            _TIME,
            "ms",
            _build_lines(
                rows, [f"{n}_{p}" for n in _select_latency(result) for p in ("p50", "p99")]
            ),
            is_log=True,
        ),
        *_build_server_charts(rows),
    ]
    return [chart for chart in charts if any(chart.values)]


def _build_server_charts(rows: Sequence[dict[str, Any]]) -> list[Chart]:
    return [
        Chart(
            "Loop lag of the tool",
            "Timer delay of the load tool's event loop, 99th percentile per second; a high value "
            "means that the tool is slow, not the server.",
            _TIME,
            "ms",
            _build_lines(rows, ("loop_lag_p99",)),
        ),
        Chart(
            "Backlog",
            "Messages and marks committed in Redis and not yet persisted in DynamoDB.",
            _TIME,
            "entries",
            _build_lines(rows, ("backlog",)),
        ),
        Chart(
            "CPU of the server",
            "CPU cores used by all processes of a role on this machine.",
            _TIME,
            "cores",
            _build_cpu_lines(rows),
        ),
    ]


def _select_latency(result: dict[str, Any]) -> list[str]:
    """Return a list with the first of `delivered`, `page` and `connect` that has values, or []."""
    series = ("delivered", "page", "connect")
    return [name for name in series if name in result["latency_ms"]][:1]


def _build_percentile_chart(result: dict[str, Any]) -> Chart:
    lines = []
    for name in _LATENCIES:
        fields = result["histograms"].get(name)
        if fields is not None:
            histogram = Histogram.from_json(fields)
            shares = [q for q in _QUANTILES if q < 1 - 0.5 / histogram.total]
            values = histogram.get_quantiles(shares)
            points = [
                (_get_x_position(q), max(value, 1) / 1000)
                for q, value in zip(shares, values, strict=True)
            ]
            lines.append(
                ChartLine(
                    name,
                    [*points, (_get_x_position(1 - 0.5 / histogram.total), histogram.max / 1000)],
                )
            )
    return Chart(
        "Latency by percentile",
        "Latency by percentile, from the scheduled time; the last point of each line is the "
        "maximum; log scale.",
        "share of all",
        "ms",
        lines,
        is_log=True,
        ticks=[(_get_x_position(share), label) for share, label in _TICKS],
    )


def _get_x_position(share: float) -> float:
    """Return the x position of a percentile: 0.9, 0.99 and 0.999 are equally spaced."""
    return -math.log10(1 - share)


def _build_lines(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[ChartLine]:
    """Return a line for each name that has a value other than 0."""
    return [
        ChartLine(name.replace("_", " "), [(row["second"], row.get(name)) for row in rows])
        for name in names
        if any(row.get(name) for row in rows)
    ]


def _build_cpu_lines(rows: Sequence[dict[str, Any]]) -> list[ChartLine]:
    roles = sorted({role for row in rows for role in row.get("cpu_s") or {}})
    lines = []
    for role in roles:
        points: list[Point] = []
        before: float | None = None
        for row in rows:
            used = (row.get("cpu_s") or {}).get(role)
            cores = None if used is None or before is None else max(0.0, used - before)
            points.append((row["second"], cores))
            before = used
        lines.append(ChartLine(role, points))
    return lines
