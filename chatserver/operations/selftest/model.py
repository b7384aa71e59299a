"""Results of a self-test, and its report as Markdown and JSON. No I/O."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import msgspec

from chatserver.domain.quantities import format_count
from chatserver.errors import ChatError, ConfigError
from chatserver.operations.cost.prices import Prices
from chatserver.operations.doctor.model import DoctorFinding

Status = Literal["passed", "failed", "skipped"]
CHECK_S_MAX = 120.0  # time limit per check
# Upper bounds on the cost: one run, including its retries, uses less.
WRITE_UNITS: Final = 5_000
READ_UNITS: Final = 5_000
PUTS: Final = 200  # number of PUT and LIST requests to S3
GETS: Final = 200


class CheckFailed(Exception):
    """A check found a violation; the message describes it."""


class CheckSkipped(Exception):
    """A check cannot run here; the message states the reason."""


class Result(msgspec.Struct, frozen=True):
    store: str  # redis, dynamodb, s3 or chat
    name: str
    status: Status
    detail: str
    seconds: float


class SelftestCheck(msgspec.Struct, frozen=True):
    """A check. `run` returns what it measured.

    It raises `CheckFailed`, `CheckSkipped` or a `ChatError`.
    """

    store: str
    name: str
    run: Callable[[], Awaitable[str]]


def require(condition: object, text: str) -> None:
    if not condition:
        raise CheckFailed(text)


def describe(exc: ChatError) -> str:
    return "; ".join(exc.problems) if isinstance(exc, ConfigError) else exc.message


async def run_check(check: SelftestCheck) -> Result:
    """Run a check and return its result. A `ChatError` or a timeout makes the check fail."""
    began = time.monotonic()
    status: Status = "failed"
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            detail = await check.run()
        status = "passed"
    except CheckSkipped as exc:
        status, detail = "skipped", str(exc)
    except ChatError as exc:
        detail = describe(exc)
    except CheckFailed as exc:
        detail = str(exc)
    except TimeoutError:
        detail = f"no result after {CHECK_S_MAX:g} s"
    seconds = round(time.monotonic() - began, 3)
    return Result(check.store, check.name, status, detail, seconds)


class SelftestReport(msgspec.Struct):
    """Result of a self-test. `left` lists resources that could not be deleted."""

    target: dict[str, str]
    started: str  # start time, ISO 8601 in UTC
    estimate_usd: float
    results: list[Result] = []
    findings: list[DoctorFinding] = []
    left: list[str] = []
    is_interrupted: bool = False

    @property
    def has_passed(self) -> bool:
        """True if no check failed, the run was not interrupted, and all its data was deleted."""
        is_broken = any(result.status == "failed" for result in self.results)
        return not (is_broken or self.is_interrupted or self.left)

    @property
    def skipped(self) -> int:
        """The number of checks that could not run here."""
        return sum(result.status == "skipped" for result in self.results)

    def to_json(self) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(self),
            "passed": self.has_passed,
            "skipped": self.skipped,
        }

    def to_markdown(self) -> str:
        state = "passed" if self.has_passed else "failed"
        if self.is_interrupted:
            state = "interrupted"
        if self.skipped:
            state += f", {self.skipped} of {format_count(len(self.results), 'check')} skipped"
        lines = [f"# Self-test: {state}", "", f"Started {self.started} (UTC).", ""]
        lines += [f"- {name}: {value}" for name, value in self.target.items()]
        lines += [f"- estimated cost: at most ${self.estimate_usd:.4f}", "", "## Checks", ""]
        lines += ["| store | check | result | seconds | detail |", "|---|---|---|---|---|"]
        lines += [
            f"| {result.store} | {result.name} | {result.status} | {result.seconds:.2f} "
            f"| {_to_cell(result.detail)} |"
            for result in self.results
        ]
        lines += ["", "## Settings", "", "| store | level | finding | fix |", "|---|---|---|---|"]
        lines += [
            f"| {finding.store} | {finding.level} | {_to_cell(finding.what)} "
            f"| {_to_cell(finding.fix)} |"
            for finding in self.findings
        ]
        if self.left:
            lines += ["", "## Not deleted", "", *(f"- {name}" for name in self.left)]
        return "\n".join(lines) + "\n"


def _to_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def estimate_usd(prices: Prices) -> float:
    """Return the cost of one run in US dollars, without storage, which is used only for minutes."""
    dynamodb, s3 = prices.dynamodb, prices.s3
    return (
        WRITE_UNITS * dynamodb.write_units_per_million_usd / 1e6
        + READ_UNITS * dynamodb.read_units_per_million_usd / 1e6
        + PUTS * s3.puts_per_thousand_usd / 1e3
        + GETS * s3.gets_per_thousand_usd / 1e3
    )
