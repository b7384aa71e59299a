"""`chatserver doctor`: find problems with settings, Redis, DynamoDB and S3; suggest fixes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.config import Settings, check_secret
from chatserver.domain.quantities import format_count
from chatserver.errors import ConfigError

if TYPE_CHECKING:
    from chatserver.operations.doctor.model import Finding

_LABELS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}
TIMEOUT_S = 60.0


@click.command()
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--all", "is_all", is_flag=True, help="Also print passed checks.")
def doctor(is_json: bool, is_all: bool) -> None:
    """Check settings, Redis, DynamoDB and S3; report problems and how to fix them.

    Safe to run at any time. The command writes only the initial keys of a new Redis, and a test
    object, which it then deletes. The exit code is 1 if there is a problem, otherwise 0.
    """
    findings = run(_check_stores(prepare("doctor")))
    for finding in findings:
        if is_json:
            click.echo(json.dumps(dataclasses.asdict(finding)))
        elif is_all or finding.level != "ok":
            _print(finding)
    problems = sum(finding.level == "problem" for finding in findings)
    notes = sum(finding.level == "note" for finding in findings)
    fine = len(findings) - problems - notes
    summary = f"{format_count(problems, 'problem')}, {format_count(notes, 'note')}, {fine} passed"
    click.echo(summary, err=True)
    sys.exit(1 if problems else 0)


def _print(finding: Finding) -> None:
    label, color = _LABELS[finding.level]
    click.echo(f"{click.style(f'{label:<8}', fg=color)}{finding.store}: {finding.what}")
    if finding.fix:
        click.echo(f"        → {finding.fix}")


async def _check_stores(settings: Settings) -> list[Finding]:
    from chatserver.domain.clock import SystemClock
    from chatserver.operations.doctor.dynamodb_checks import check_dynamodb
    from chatserver.operations.doctor.model import Finding
    from chatserver.operations.doctor.redis_checks import check_redis
    from chatserver.operations.doctor.s3_checks import check_s3

    checks = {
        "redis": check_redis(
            settings.redis, SystemClock(), ["search"] if settings.search.index else []
        ),
        "dynamodb": check_dynamodb(settings.warm),
        "s3": check_s3(settings.cold),
    }

    async def run_check(store: str) -> list[Finding]:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await checks[store]
        except TimeoutError:
            message = f"no response within {TIMEOUT_S:g} s"
            return [Finding(store, "problem", message, "check the network")]

    # Redis is checked first, on its own: loading the AWS library blocks the event loop, so the
    # Redis connection could miss its two-second deadline.
    redis = await run_check("redis")
    results = [redis, *await asyncio.gather(run_check("dynamodb"), run_check("s3"))]
    return [
        *_check_settings(settings),
        *(finding for store_findings in results for finding in store_findings),
    ]


def _check_settings(settings: Settings) -> list[Finding]:
    from chatserver.operations.doctor.model import Finding

    try:
        check_secret(settings)
        findings = [Finding("settings", "ok", "auth.secret is long enough")]
    except ConfigError as exc:
        findings = [Finding("settings", "problem", problem) for problem in exc.problems]
    if settings.auth.registration == "open":
        message = "anyone can register an account (auth.registration is open)"
        fix = "set CHAT_AUTH_REGISTRATION=closed if the host application creates accounts"
        findings.append(Finding("settings", "note", message, fix))
    if settings.telemetry.metrics_port is None:
        message = "metrics are not served (telemetry.metrics_port is not set)"
        fix = "set CHAT_TELEMETRY_METRICS_PORT for each process, and scrape it with Prometheus"
        findings.append(Finding("settings", "note", message, fix))
    return findings
