"""Every benchmark with tiny arguments, so that none stops working unnoticed; no time is checked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatserver.dev.servers import Server
from chatserver.loadtest import wire
from tests.benchmarks.direct_messages import build_stub_launch
from tests.benchmarks.peers import protocols
from tests.benchmarks.peers.load import Load
from tests.benchmarks.support import harness
from tests.benchmarks.support.harness import Bench
from tests.benchmarks.support.measurements import CpuMeter
from tests.support.benchmark_runs import run_benchmark

FOLDER = Path(harness.__file__).parents[1]
# `tests/security/test_storm.py` runs the storm.
NAMES = sorted(
    {path.stem for path in FOLDER.glob("*.py")} - {"attack_storm"}
    | {path.parent.name for path in FOLDER.glob("*/__main__.py")}
)
SHORT = "--seconds 0.3 --warmup 0.1 --runs 1"
DIRECT = f"--pairs 2 --window 2 {SHORT}"
# A benchmark that is not here runs with its defaults.
ARGUMENTS = {
    "client_cache": "--messages 1000 --runs 2",
    "direct_messages": f"{DIRECT} --open-rate 50 --p99-ms 0",
    "group_messages": f"--members 10 --senders 2 {SHORT}",
    "idle_cpu": "--seconds 0.3 --settle 0",
    "idle_sessions": "--sessions 20",
    "logins": "--users 20 --lost-sessions 5",
    "memory_budget": "--budget 20000",
    "peers": "--targets ours --quick",
    "persist_worker": "--messages 500 --encrypt --runs 1",
    "search": "--messages 500 --queries 2",
    "send_path": "--ticks 20",
    "social_graph": "--follows 5 --likes 5 --followers 10 --renewals 3",
    "storage_footprint": "--messages 4 --chats 2",
    "web_client": "--messages 200 --outage 0.1",
}


def iter_numbers(value: Any) -> Iterator[float]:
    match value:
        case dict():
            for each in value.values():
                yield from iter_numbers(each)
        case int() | float():
            yield value


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_with_tiny_arguments_prints_its_figures(name: str, tmp_path: Path) -> None:
    """It measures without a wrong result; its text and its file have the figures."""
    result, report = run_benchmark(name, ARGUMENTS.get(name, ""), tmp_path / "figures.json")

    assert result.exit_code == 0, result.output
    assert report["benchmark"] == name and report["violations"] == {}
    about = ("benchmark", "about", "violations", "runs")
    figures = {key: value for key, value in report.items() if key not in about}
    numbers = list(iter_numbers(figures))
    assert any(number > 0 for number in numbers) and not any(map(math.isnan, numbers))
    if name not in ("item_units", "peers"):  # they print tables
        assert harness.render_figures(figures) in result.output


def test_benchmark_with_lost_messages_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that loses messages causes exit code 1, with examples."""
    monkeypatch.setattr("tests.benchmarks.direct_messages.DRAIN_S", 1.0)  # wait for the lost ones
    # The stub loses the 1,000th message of each chat.
    arguments = f"--pairs 1 --window 2 {SHORT} --open-rate 5000 --p99-ms 0 --stub lose"

    result, report = run_benchmark("direct_messages", arguments, tmp_path / "figures.json")

    assert result.exit_code == 1
    assert report["violations"]["lost"] > 0
    assert "lost: " in result.output


@pytest.mark.parametrize(("fault", "kind"), [("lose", "lost"), ("repeat", "duplicate")])
def test_comparison_finds_messages_that_are_lost_or_repeated(
    fault: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stub, whose chats have other ids, changes the 1,000th message."""
    monkeypatch.setattr(protocols, "encode_frame", wire.encode_client_frame)
    monkeypatch.setattr(protocols, "direct_chat_id", lambda a, b: f"d-{a}-{b}")
    stub = Server(build_stub_launch(Bench(0, contextlib.ExitStack(), tmp_path), fault)).start()
    load = Load(stub.port, protocols.Ours, str, is_room=False)
    try:
        load.open(2)
        step = load.run_step(2000, 0.8, CpuMeter({"stub": stub}))
    finally:
        load.close()
        stub.kill()

    assert step["missing"] == (fault == "lose")
    assert load.count_violations() == {"lost": 0, "duplicate": 0, kind: 1}


def test_benchmark_of_a_large_chat_reports_latencies(tmp_path: Path) -> None:
    """The events of a large chat are not in inboxes."""
    arguments = f"--members 10 --senders 2 --large {SHORT}"

    result, report = run_benchmark("group_messages", arguments, tmp_path / "figures.json")

    assert result.exit_code == 0, result.output
    assert report["open_at_half"]["delivered"]["p99_ms"] > 0


def test_report_has_the_medians_of_all_runs() -> None:
    """Figures of one run are as measured; those of several are medians, and texts the first."""
    runs = [{"rate": {"per_second": rate}, "unit": "bytes"} for rate in (1, 9, 4)]

    assert harness.combine(runs) == {"rate": {"per_second": 4}, "unit": "bytes"}
    assert harness.combine(runs[:1]) == runs[0]
