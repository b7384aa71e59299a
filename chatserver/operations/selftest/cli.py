"""`chatserver selftest`: run the checks, delete what they created, and write a report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.command_options import with_options
from chatserver.config import Settings
from chatserver.domain.quantities import format_count
from chatserver.errors import ChatError, ConfigError

if TYPE_CHECKING:
    from chatserver.operations.selftest.model import SelftestCheck, SelftestReport
    from chatserver.operations.selftest.resources import Names

_COLORS: Final = {"passed": "green", "skipped": "yellow", "failed": "red"}


@click.command()
@with_options
def selftest(
    *,
    is_aws: Annotated[bool, "Run against AWS; the `endpoint` settings must be unset."] = False,
    is_confirmed: Annotated[bool, "--yes", "Do not ask to confirm the cost."] = False,
    out: Annotated[
        Path,
        click.Path(file_okay=False, path_type=Path),
        "Folder for selftest.md and selftest.json.",
    ] = Path(),
) -> None:
    """Test the server's guarantees on the configured Redis, DynamoDB and S3.

    The command creates its own tables, objects and keys, and deletes them at the end, even after
    Ctrl-C. The bucket must exist. Exit code: 0 no check failed, 1 a check failed or something
    could not be deleted, 2 the settings are wrong.
    """
    from chatserver.operations.cost.prices import load_prices
    from chatserver.operations.selftest.model import estimate_usd
    from chatserver.operations.selftest.resources import Names

    settings = prepare("selftest")
    require_target(settings, is_aws=is_aws)
    usd, names = estimate_usd(load_prices()), Names.choose()
    if is_aws:
        region = f"region {settings.warm.region or 'of the environment'}"
        click.echo(f"This creates tables and objects named {names.prefix} in AWS, {region}.")
        click.echo(f"Estimated cost: at most ${usd:.4f}, at the list prices of us-east-1.")
        if not is_confirmed:
            click.confirm("Continue?", abort=True)
    report = run(run_selftest(settings, names, usd))
    out.mkdir(parents=True, exist_ok=True)
    (out / "selftest.md").write_text(report.to_markdown(), encoding="utf-8")
    (out / "selftest.json").write_text(json.dumps(report.to_json(), indent=1) + "\n", "utf-8")
    _print(report, out)
    sys.exit(0 if report.has_passed else 1)


def require_target(settings: Settings, *, is_aws: bool) -> None:
    """Check that the settings use AWS if and only if `is_aws`.

    Raises:
        ConfigError: the settings name a local server although `is_aws` is true, or the reverse.
    """
    endpoints = {"warm.endpoint": settings.warm.endpoint, "cold.endpoint": settings.cold.endpoint}
    problems = []
    for name, endpoint in endpoints.items():
        variable = f"CHAT_{name.replace('.', '_').upper()}"
        if is_aws and endpoint is not None:
            problems.append(f"--aws: {name} ({variable}) is {endpoint}; unset it to use AWS")
        if not is_aws and endpoint is None:
            problems.append(f"{name} ({variable}) is not set, which means AWS; add --aws")
    if problems:
        raise ConfigError(*problems)


async def run_selftest(settings: Settings, names: Names, usd: float) -> SelftestReport:
    """Run all checks, then delete their data, even after SIGINT or SIGTERM."""
    from chatserver.hot.redis.connection_setup import RedisAddress
    from chatserver.operations.selftest.model import SelftestReport

    target = {
        "Redis": RedisAddress(settings.redis.url).name,
        "DynamoDB": settings.warm.endpoint or f"AWS, region {settings.warm.region}",
        "S3": f"{settings.cold.endpoint or 'AWS'}, bucket {settings.cold.bucket}",
        "prefix": names.prefix,
    }
    report = SelftestReport(target, datetime.now(UTC).isoformat(timespec="seconds"), usd)
    task = asyncio.create_task(_run_checks(settings, names, report), name="selftest")
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if not report.is_interrupted:  # a second signal does not interrupt the deletion
            report.is_interrupted = True
            click.echo("interrupted; deleting tables and objects", err=True)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return report


async def _run_checks(settings: Settings, names: Names, report: SelftestReport) -> None:
    from chatserver.cold.client import open_s3
    from chatserver.container.storage import open_storage_container
    from chatserver.domain.clock import SystemClock
    from chatserver.hot.redis.factory import open_hot
    from chatserver.operations.doctor.dynamodb_checks import check_dynamodb
    from chatserver.operations.doctor.redis_checks import check_redis
    from chatserver.operations.doctor.s3_checks import check_s3
    from chatserver.operations.selftest import resources
    from chatserver.operations.selftest.dynamodb_checks import DynamodbChecks
    from chatserver.operations.selftest.model import Result, describe
    from chatserver.operations.selftest.redis_checks import RedisChecks
    from chatserver.operations.selftest.s3_checks import S3Checks
    from chatserver.operations.selftest.worker import ChatChecks
    from chatserver.warm.dynamo.connections import open_dynamodb

    own, clock = resources.build_isolated_settings(settings, names), SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        dynamodb = await stack.enter_async_context(open_dynamodb(own.warm))
        client = dynamodb.for_feature("operations")
        store = await stack.enter_async_context(open_s3(own.cold))
        stack.push_async_callback(_delete, report, resources.delete_objects(store))
        stack.push_async_callback(_delete, report, resources.delete_tables(client, own))
        report.findings += await check_redis(settings.redis, clock)
        report.findings += await check_s3(own.cold)
        await _run_all(report, S3Checks(store).list_checks())
        await _run_all(report, DynamodbChecks(client, own).list_checks())
        report.findings += await check_dynamodb(own.warm)
        try:
            hot = await stack.enter_async_context(open_hot(own.redis))
            await _run_all(report, RedisChecks(hot, names).list_checks())
            is_claimed = await resources.claim_redis(hot, names)
            if is_claimed:
                stack.push_async_callback(_delete, report, resources.delete_keys(hot, names))
            container = await stack.enter_async_context(
                open_storage_container(role="worker", settings=own, clock=clock)
            )
        except ChatError as exc:  # a store is down: report the other results
            report.results.append(Result("redis", "connect", "failed", describe(exc), 0.0))
            return
        chat = ChatChecks(container, names, is_claimed=is_claimed)
        await _run_all(report, chat.list_checks())


async def _run_all(report: SelftestReport, checks: list[SelftestCheck]) -> None:
    from chatserver.operations.selftest.model import run_check

    for check in checks:
        result = await run_check(check)
        report.results.append(result)
        mark = click.style(f"{result.status:<8}", fg=_COLORS[result.status])
        click.echo(f"{mark}{result.store}: {result.name}: {result.detail}")


async def _delete(report: SelftestReport, deletion: Awaitable[list[str]]) -> None:
    try:
        report.left += await deletion
    except ChatError as exc:
        report.left.append(exc.message)


def _print(report: SelftestReport, out: Path) -> None:
    for name in report.left:
        click.echo(f"could not delete: {name}", err=True)
    failures = sum(result.status == "failed" for result in report.results)
    click.echo(
        f"{format_count(len(report.results), 'check')}, {format_count(failures, 'failure')}, "
        f"{report.skipped} skipped; report: {out / 'selftest.md'}"
    )
