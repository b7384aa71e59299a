"""Results of a load test: verdict, constants for the capacity model, HTML report."""

from __future__ import annotations

import html.parser
import json
from typing import Any

import pytest

from chatserver.loadtest.coordinator import Coordinator, Totals
from chatserver.loadtest.histogram import Histogram
from chatserver.loadtest.plan import SCENARIOS, LoadPlan
from chatserver.loadtest.report.html_page import render
from chatserver.loadtest.report.result import build, collect_counts, to_json
from chatserver.loadtest.report.summary import iter_lines
from chatserver.loadtest.report.thresholds import (
    ScriptThresholds,
    Thresholds,
    check_thresholds,
)
from chatserver.loadtest.server_monitor import ServerSample, find_role, parse_metrics

HTML_IN_EXAMPLE = "<script>alert(1)</script>"


def make_result(name: str = "direct", **findings: int) -> dict[str, Any]:
    """Return the result of an example run of three seconds."""
    scenario = SCENARIOS[name]
    plan = LoadPlan(
        run="r",
        url="ws://127.0.0.1:1/",
        secret="s",
        audience="a",
        issuer=None,
        token_s=600,
        first_user=1,
        users=20,
        rate=100,
        duration_s=3,
        settle_s=1,
        body_bytes=200,
        seed=1,
        connects_per_s=10,
        shape=scenario.shape,
        mix=scenario.mix,
        storm_s=0,
        preload=0,
    )
    run = Coordinator([plan])
    latencies = Histogram()
    for n in range(1000):
        latencies.record(1000 + n * 10)
    for second in range(3):
        parts = {"ack": latencies.to_json(), "delivered": latencies.to_json()}
        counts = {"offered": 100, "sent": 100, "acked": 100, "delivered": 200}
        report = {"second": second, "expected": 200 * (second + 1), "counts": counts}
        run.totals.add_second(0, {**report, "histograms": parts})
        run.totals.record_snapshot(
            second, {"cpu_s": {"gateway": second * 0.2}, "backlog": 3 - second}
        )
    kinds = dict.fromkeys(("lost", "duplicate", "disordered", "mismatched", "jumped"), 0)
    run.totals.results.append(
        {
            "took_s": 3.0,
            "cpu_s": 0.3,
            "findings": {**kinds, **findings},
            "examples": [HTML_IN_EXAMPLE],
            "refusals": {},
            "last_failure": "",
            "fatal": "",
            "first_error": "",
            "unacked": 0,
            "unsent": 0,
        }
    )
    run.before = ServerSample(cpu_s={"gateway": 1.0}, redis_bytes=1000, write_units=10, stored=5)
    run.after = ServerSample(
        cpu_s={"gateway": 1.6}, redis_bytes=31_000, write_units=610, stored=305
    )
    ceiling = {"per_s": 1000.0, "deliveries_per_s": 2000.0, "cpu_us_per_action": 9.0}
    ceiling |= {"seconds": 2.0, "processes": 1}
    return build(
        scenario, run, pids={"gateway": [1]}, has_redis=True, ceiling=ceiling, load_average=()
    )


@pytest.mark.parametrize(
    ("bounds", "findings", "broken"),
    [
        (Thresholds(), {}, ""),
        (Thresholds(), {"lost": 1}, "lost"),
        (Thresholds(max_loss=1), {"lost": 1}, ""),
        (Thresholds(), {"duplicate": 1}, "duplicates"),
        (Thresholds(), {"jumped": 1}, "out of order"),
        (Thresholds(max_p99_ms=20), {}, ""),
        (Thresholds(max_p99_ms=10), {}, "p99 of delivered"),
        (Thresholds(max_p999_ms=10), {}, "p99.9 of delivered"),
        (Thresholds(min_done=1.0), {}, ""),
    ],
)
def test_verdict_names_each_exceeded_threshold(
    bounds: Thresholds, findings: dict[str, int], broken: str
) -> None:
    """Thresholds that were met are not named."""
    verdict = check_thresholds(make_result(**findings), bounds)

    assert verdict["is_ok"] is (not broken)
    assert len(verdict["broken"]) == bool(broken)
    assert broken in "".join(verdict["broken"])


def test_verdict_on_a_script_includes_its_checks_and_exceptions() -> None:
    """They are listed in the result by name, and the page shows the first exception."""
    result = make_result()
    counts = {"check_passed:fast": 2, "check_failed:fast": 1, "metric:answers": 3, "errors": 4}
    totals = Totals()
    totals.add_second(0, {"second": 0, "expected": 0, "counts": counts, "histograms": {}})
    result["counts"] = collect_counts(totals)
    result["first_error"] = HTML_IN_EXAMPLE

    verdict = result["verdict"] = check_thresholds(result, ScriptThresholds())

    assert verdict["broken"] == [
        "failed checks (fast): 1, at most 0 allowed",
        "exceptions in users: 4, at most 0 allowed",
    ]
    assert check_thresholds(result, ScriptThresholds(max_failed_checks=1, max_errors=4))["is_ok"]
    lines = list(iter_lines(result))
    assert "check   fast: 2 passed, 1 failed" in lines and "count   answers: 3" in lines
    assert "First exception" in render(result) and HTML_IN_EXAMPLE not in render(result)


@pytest.mark.parametrize(
    ("counts", "broken"),
    [({"unacked": 2, "unsent": 1}, "not acked: 3"), ({"refused": {"forbidden": 4}}, "refused: 4")],
)
def test_script_fails_if_the_server_does_not_accept_its_messages(
    counts: dict[str, Any], broken: str
) -> None:
    """Nothing is lost then, because only acked messages can be."""
    result = make_result()
    result["counts"] = collect_counts(Totals()) | counts

    assert check_thresholds(result, Thresholds())["is_ok"]
    verdict = check_thresholds(result, ScriptThresholds())
    assert verdict["broken"] == [f"{broken}, at most 0 allowed"]


def test_verdict_of_an_incomplete_run_is_never_ok() -> None:
    """A load process that died may have seen a loss."""
    result = make_result()
    result |= {"ended": "broken", "why_broken": "a process was killed"}

    verdict = check_thresholds(result, Thresholds())

    assert not verdict["is_ok"]
    assert verdict["broken"] == ["the results are incomplete: a process was killed"]


def test_constants_are_resources_used_per_message() -> None:
    """Only resources used during the run count; unmeasured values are None, not 0."""
    constants = make_result()["constants"]

    assert constants["gateway_cpu_us_per_message"]["value"] == 2000.0
    assert constants["gateway_cpu_us_per_delivery"]["value"] == 1000.0
    assert constants["deliveries_per_message"]["value"] == 2.0
    assert constants["redis_bytes_per_message"]["value"] == 100.0
    assert constants["write_units_per_message"]["value"] == 2.0
    assert constants["redis_cpu_us_per_message"]["value"] is None
    assert "no such process" in constants["redis_cpu_us_per_message"]["how"]
    mixed = make_result("mixed")["constants"]
    assert mixed["gateway_cpu_us_per_message"]["value"] is None


def test_series_has_each_second_and_the_load_of_the_tool() -> None:
    """Each second has its own percentiles and the backlog at its end."""
    result = make_result()

    assert [row["acked"] for row in result["series"]] == [100, 100, 100]
    assert [row["backlog"] for row in result["series"]] == [3, 2, 1]
    assert result["series"][0]["delivered_p99"] == pytest.approx(10.9, rel=0.01)
    assert result["tool"]["used_of_ceiling"] == 0.1


class _Page(html.parser.HTMLParser):
    """Collects the tags of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all_of(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of each such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def test_page_is_self_contained_and_describes_each_chart() -> None:
    """The page loads no resource and runs no script; each chart has a description and a table."""
    result = make_result()
    result["verdict"] = check_thresholds(result, Thresholds(max_p99_ms=1))

    text = render(result)

    page = _Page(text)
    charts = [chart for chart in page.all_of("svg") if chart.get("role") == "img"]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(charts) == len(page.all_of("figure")) == len(page.all_of("details")) >= 5
    assert len(page.all_of("desc")) == len(charts) and len(ids) == len(set(ids))
    for chart in charts:
        assert set((chart["aria-labelledby"] or "").split()) <= set(ids)
    assert not [tag for tag, _ in page.tags if tag in {"script", "img", "link", "iframe"}]
    assert "http" not in text.replace("http-equiv", "") and "url(" not in text
    assert "A threshold was exceeded" in text and "prefers-color-scheme: dark" in text


def test_page_of_an_empty_result_is_rendered() -> None:
    """A load that is stopped before its first measurement has a report too."""
    result = make_result()
    result |= {"series": [], "histograms": {}, "latency_ms": {}, "ended": "interrupted"}
    result["verdict"] = check_thresholds(result, Thresholds())

    assert "interrupted" in render(result)
    assert json.loads(to_json(result)) == json.loads(json.dumps(result))


def test_metrics_of_all_labels_are_added_up() -> None:
    """A backlog has a value per partition; comments and empty lines are ignored."""
    text = '# HELP a b\n\na{partition="0"} 3.0\na{partition="1 x"} 4\nb 1e3\n'

    assert parse_metrics(text) == {"a": 7.0, "b": 1000.0}


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["python", "-m", "chatserver.cli.main", "gateway"], "gateway"),
        (["python", "/opt/bin/chatserver", "worker", "all"], "worker"),
        (["python", "-m", "chatserver.cli.main", "dev"], None),
        (["redis-server 127.0.0.1:6379"], "redis"),
        (["/opt/dynoxide", "serve"], "dynamodb"),
        (["/bin/sh"], None),
        ([], None),
    ],
)
def test_role_of_a_process_is_found_by_its_command(command: list[str], role: str | None) -> None:
    """Processes that are not part of a server are not counted."""
    assert find_role(command) == role


def test_totals_of_a_long_run_merge_histograms_and_keep_percentiles() -> None:
    """The memory of a long run is bounded, and its percentiles are exact."""
    totals, latencies = Totals(), Histogram()
    latencies.record(5000)
    report = {"expected": 0, "counts": {}, "histograms": {"ack": latencies.to_json()}}

    for second in range(200):
        totals.add_second(0, {**report, "second": second})

    assert {totals.get_percentile_ms(n, "ack", 0.99) for n in range(200)} == {5.0}
    assert len(totals._parts) <= 31
