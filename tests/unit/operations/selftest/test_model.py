"""Results and reports of self-tests."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from chatserver.config import Cold, Settings, Warm
from chatserver.errors import ConfigError, Unavailable
from chatserver.operations.cost.prices import load_prices
from chatserver.operations.selftest.cli import require_target
from chatserver.operations.selftest.model import (
    CheckFailed,
    CheckSkipped,
    Result,
    SelftestCheck,
    SelftestReport,
    estimate_usd,
    run_check,
)
from chatserver.operations.selftest.resources import Names, build_isolated_settings


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (None, "passed", "fine"),
        (CheckSkipped("not here"), "skipped", "not here"),
        (CheckFailed("a | b"), "failed", "a | b"),
        (Unavailable("down"), "failed", "down"),
        (ConfigError("one", "two"), "failed", "one; two"),
    ],
)
async def test_result_of_a_check_is_its_detail_or_its_error(
    error: Exception | None, status: str, detail: str
) -> None:
    """An error of a check is its result and is not raised."""

    async def run() -> str:
        if error is not None:
            raise error
        return "fine"

    result = await run_check(SelftestCheck("s3", "name", run))

    assert (result.status, result.detail) == (status, detail)


def test_report_passes_only_without_failures_and_leftovers() -> None:
    """A skipped check is not a failure; a pipe in a text does not break the table."""
    report = SelftestReport({"S3": "here"}, "2026-01-01T00:00:00", 0.01)
    report.results.append(Result("s3", "a", "skipped", "x | y", 0.1))
    assert report.has_passed and "x \\| y" in report.to_markdown()
    report.left.append("table t")
    assert not report.has_passed and "- table t" in report.to_markdown()
    report.left.clear()
    report.is_interrupted = True
    assert not report.to_json()["passed"]


def test_target_must_agree_with_the_aws_option() -> None:
    """No run costs money by mistake, and no local server is reported as AWS."""
    local = Settings(warm=Warm(endpoint="http://127.0.0.1:1"), cold=Cold(endpoint="http://h:2"))
    aws = Settings(warm=Warm(region="eu-central-1"), cold=Cold())

    require_target(local, is_aws=False)
    require_target(aws, is_aws=True)
    with pytest.raises(ConfigError, match=r"CHAT_WARM_ENDPOINT.*unset it"):
        require_target(local, is_aws=True)
    with pytest.raises(ConfigError, match=r"CHAT_COLD_ENDPOINT.*add --aws"):
        require_target(aws, is_aws=False)


def test_run_uses_unique_names() -> None:
    """The run touches no table and no object of the deployment."""
    warm = Warm(table_prefix="chat_", access_key="a", secret_key=SecretStr("b"))
    names = Names.choose()

    own = build_isolated_settings(Settings(warm=warm), names)

    assert own.warm.table_prefix == f"{names.prefix}-"
    assert own.cold.tenant == names.prefix
    assert names != Names.choose()


def test_estimate_is_positive_and_below_ten_cents() -> None:
    """The command shows the estimate before it spends money."""
    assert 0 < estimate_usd(load_prices()) < 0.1


def test_report_counts_skipped_checks() -> None:
    """A run in which checks could not run is not reported as a plain success."""
    report = SelftestReport({}, "2026-01-01T00:00:00+00:00", 0.0)
    report.results = [
        Result("redis", "one", "passed", "", 0.0),
        Result("chat", "two", "skipped", "", 0.0),
    ]

    assert report.has_passed
    assert report.to_markdown().startswith("# Self-test: passed, 1 of 2 checks skipped\n")
    assert report.to_json()["skipped"] == 1
