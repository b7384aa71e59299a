"""`chatserver analytics`: export messages as Parquet files, and query them with SQL.

Exit codes: 0 success, 1 a service is unavailable or messages were postponed, 2 an option is
invalid.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import decimal
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from chatserver.cli.process_setup import prepare, require_redis, run
from chatserver.command_options import handle_errors, with_options
from chatserver.errors import BadRequest, NotFound
from chatserver.features.analytics.package_check import check_extra

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer
    from chatserver.features.analytics.duckdb_query import QueryResult
    from chatserver.features.analytics.worker.exporter import ExportTally
    from chatserver.hot.worker_leases import Lease

ROWS_DEFAULT = 1000
ROWS_MAX = 100_000
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@click.group()
def analytics() -> None:
    """Export messages as Parquet files, and query them with SQL."""


@analytics.command()
@with_options
async def export(
    *,
    with_warm: Annotated[
        bool, "--warm", "Also export unarchived messages. Costs at least one read unit per chat."
    ] = False,
    is_all: Annotated[
        bool,
        "Compare all archived messages with the files, and repair the files; for example after "
        "CHAT_ANALYTICS_EXPORT has changed.",
    ] = False,
) -> None:
    """Export new and changed messages once.

    You can stop this command at any time; the next run continues. `chatserver worker analytics`
    exports archived messages every hour. Requires Redis, DynamoDB and S3.
    """
    from chatserver.cli.progress import open_report
    from chatserver.features.analytics.worker.export_passes import ExportPass

    async with _open_lease() as (container, lease):
        await container.check_tables()
        with open_report(container.clock, is_stderr=True) as report:
            report.begin("analytics", 0)

            async def on_progress(tally: ExportTally) -> None:
                report.show(tally.units, _format_tally(tally))

            tally = await ExportPass(container, lease, on_progress).run(
                with_warm=with_warm, is_all=is_all
            )
            report.end()
    click.echo(_format_tally(tally))
    if tally.postponed:
        click.echo(
            f"some messages were postponed ({tally.postponed} ranges); run the command again",
            err=True,
        )
        sys.exit(1)


@contextlib.asynccontextmanager
async def _open_lease() -> AsyncIterator[tuple[StorageContainer, Lease]]:
    """Open the stores, and the lease of the process that exports."""
    from chatserver.container.storage import open_storage_container
    from chatserver.domain.clock import SystemClock
    from chatserver.domain.ids import new_id
    from chatserver.features.analytics.worker.export_passes import make_lease
    from chatserver.telemetry.failpoints import arm_failpoint

    check_extra()
    settings = prepare("analytics")
    require_redis(settings.redis)
    arm_failpoint()
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        lease = make_lease(container, f"{socket.gethostname()}-{os.getpid()}-{new_id()}")
        async with lease.release_on_exit():
            yield container, lease


def _format_tally(tally: ExportTally) -> str:
    return f"{tally.rows} rows read, {tally.files} files written, {tally.bytes} bytes"


@analytics.command()
@with_options
async def compact() -> None:
    """Merge the small files of each date into larger files.

    `chatserver worker analytics` does this after each export. You can stop this command at any
    time; the next run continues. Requires Redis and S3.
    """
    from chatserver.features.analytics.worker.export_passes import make_compactor

    async with _open_lease() as (container, lease):
        tally = await make_compactor(container, lease).run()
    click.echo(f"{tally.moved} files moved into {tally.created}, {tally.deleted} deleted")


@analytics.command()
@with_options
def table(
    *,
    form: Annotated[
        Literal["athena", "glue"],
        "--format",
        "`athena`: CREATE TABLE statement. `glue`: `TableInput` for `aws glue create-table`.",
    ] = "athena",
    tenants: Annotated[
        tuple[str, ...],
        "--tenant",
        "Tenant to include in the table; can be repeated. Default: CHAT_WARM_TENANT.",
    ] = (),
    first_date: Annotated[
        str | None, "Earliest date that the table includes. Default: 2020-01-01."
    ] = None,
) -> None:
    """Print a table definition for Athena or AWS Glue."""
    from chatserver.features.analytics.table_definition import (
        FIRST_DATE,
        make_ddl,
        make_glue_input,
    )

    if first_date is not None and not _DATE.fullmatch(first_date):
        raise click.UsageError("--first-date must be a date, for example 2026-01-31")
    settings = prepare("analytics").cold
    tenant_names = list(tenants) or [name for name in [settings.tenant] if name]
    first = first_date or FIRST_DATE
    if form == "athena":
        click.echo(make_ddl(settings, tenant_names, first))
    else:
        click.echo(json.dumps(make_glue_input(settings, tenant_names, first), indent=2))


@analytics.command()
@click.argument("sql")
@handle_errors(NotFound, usage=(BadRequest,))
@with_options
def query(
    sql: str,
    *,
    form: Annotated[
        Literal["table", "json", "csv"], "--format", "`json`: one object per line."
    ] = "table",
    max_rows: Annotated[
        int, click.IntRange(1, ROWS_MAX), "Maximum number of rows to print."
    ] = ROWS_DEFAULT,
    folder: Annotated[
        Path | None,
        click.Path(exists=True, file_okay=False, path_type=Path),
        "--files",
        "Read a local copy of the files instead of S3.",
    ] = None,
) -> None:
    """Run a SELECT statement on the table `messages`, which contains the exported messages.

    Read-only. Requires S3, or --files.
    """
    from chatserver.cold.client import open_s3
    from chatserver.features.analytics.cold import ParquetFiles
    from chatserver.features.analytics.duckdb_query import (
        open_folder,
        query_exported_files,
        run_query,
    )

    check_extra()

    async def query_bucket() -> QueryResult:
        async with open_s3(prepare("analytics").cold) as store:
            return await query_exported_files(ParquetFiles(store), sql, max_rows)

    if folder is not None:
        result = run_query(open_folder(folder), sql, max_rows)
    else:
        result = run(query_bucket())
    _print_result(result, form)
    if result.is_cut:
        click.echo(f"only the first {max_rows} rows are shown; raise --max-rows", err=True)


def _print_result(result: QueryResult, form: str) -> None:
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows([_to_json_value(value) for value in row] for row in result.rows)
    elif form == "json":
        for row in result.rows:
            values = dict(zip(result.columns, map(_to_json_value, row), strict=True))
            click.echo(json.dumps(values, ensure_ascii=False))
    else:
        for line in _format_table(result):
            click.echo(line)


def _to_json_value(value: Any) -> Any:
    match value:
        case datetime.datetime():
            return value.isoformat(" ")
        case datetime.date() | datetime.time() | datetime.timedelta():
            return str(value)
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list() | tuple():
            return [_to_json_value(element) for element in value]
        case dict():
            return {str(key): _to_json_value(element) for key, element in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _format_table(result: QueryResult) -> Sequence[str]:
    from chatserver.telemetry.printable_text import replace_unprintable

    def format_cell(value: Any) -> str:
        plain = _to_json_value(value)
        return "" if plain is None else replace_unprintable(str(plain))

    rows = [[format_cell(value) for value in row] for row in result.rows]
    is_number = [
        all(isinstance(row[index], int | float | decimal.Decimal | None) for row in result.rows)
        for index in range(len(result.columns))
    ]
    widths = [
        max(len(name), *(len(row[index]) for row in rows)) if rows else len(name)
        for index, name in enumerate(result.columns)
    ]

    def format_line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_number, strict=True)
        ]
        return "  ".join(placed).rstrip()

    return [
        format_line(result.columns),
        format_line(["-" * width for width in widths]),
        *map(format_line, rows),
    ]
