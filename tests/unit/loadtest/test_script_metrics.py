"""Checks and metrics of load scripts are bounded."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.loadtest.script_metrics import NAMES_MAX, ScriptMetrics
from chatserver.loadtest.worker_state import Meters


def test_checks_and_metrics_are_counted_by_name() -> None:
    """Passed and failed checks are counted separately; a time is recorded in microseconds."""
    meters = Meters()
    metrics = ScriptMetrics(meters)

    metrics.record_check("has an answer", True)
    metrics.record_check("has an answer", False)
    metrics.add_count("answers", 2)
    metrics.record_time("answer_time", 0.25)

    assert meters.counts == {
        "check_passed:has an answer": 1,
        "check_failed:has an answer": 1,
        "metric:answers": 2,
    }
    assert meters.histograms["answer_time"].max == 250_000


@pytest.mark.parametrize("name", ["", "Upper", "with space", "x" * 41, "1st", "delivered"])
def test_metric_with_an_invalid_name_is_refused(name: str) -> None:
    """A name of the load tool's own cannot be used, too."""
    with pytest.raises(ValueError, match="metric "):
        ScriptMetrics(Meters()).add_count(name, 1)


@pytest.mark.parametrize("seconds", [-0.1, 3601, float("nan")])
def test_metric_with_an_invalid_time_is_refused(seconds: float) -> None:
    """Times are 0 to an hour."""
    with pytest.raises(ValueError, match="a time must be 0 to 3600 s"):
        ScriptMetrics(Meters()).record_time("wait", seconds)


@pytest.mark.parametrize("amount", [0.5, float("nan"), 10**13, "1"])
def test_count_of_an_invalid_amount_is_refused(amount: Any) -> None:
    """Counts are whole numbers: the report adds those of all processes."""
    with pytest.raises(ValueError, match="a count must be an int"):
        ScriptMetrics(Meters()).add_count("answers", amount)


def test_names_are_limited_in_number_and_length() -> None:
    """A script that puts an id into a name gets an error and does not fill the memory."""
    metrics = ScriptMetrics(Meters())
    for number in range(NAMES_MAX):
        metrics.add_count(f"n{number}", 1)
    metrics.add_count("n0", 1)

    with pytest.raises(ValueError, match="at most 50"):
        metrics.record_check("one more", True)
    with pytest.raises(ValueError, match="1 to 80 characters"):
        metrics.record_check("x" * 81, True)
