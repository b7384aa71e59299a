"""`chatserver tenants list` and `chatserver tenants measure`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from chatserver.cli.process_setup import prepare, run
from chatserver.config import Settings
from chatserver.domain.quantities import format_bytes, format_count
from chatserver.operations.tenants.tenant_cli import (
    Progress,
    handle_errors,
    redis_option,
    units_option,
)

if TYPE_CHECKING:
    from chatserver.operations.tenants.tenant_costs import TenantSize
    from chatserver.operations.tenants.tenant_list import TenantLine

PAGE_MAX: Final = 10_000


@click.command("list")
@click.option("--after", default="", help="List only tenants after this name, for the next page.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_MAX), default=1000, show_default=True, help="Page size."
)
@click.option(
    "--scan",
    type=click.Choice(["none", "directory", "all"]),
    default="directory",
    show_default=True,
    help="DynamoDB tables to scan. `all` also finds tenants that have no items in "
    "the `directory` table.",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per tenant.")
@units_option
@redis_option
def list_command(
    after: str, limit: int, scan: str, is_json: bool, max_units: int | None, has_redis: bool
) -> None:
    """List all tenants in the tables, the bucket and the configured Redis.

    The command scans tables (see --scan), because no index lists the tenants. A scan costs half a
    read unit per 4 KB.
    """
    settings = prepare("tenants")
    with handle_errors(), Progress("list") as progress:
        tenants = run(_list(settings, scan, max_units, progress, has_redis=has_redis))
    later = [tenant for tenant in tenants if tenant.tenant > after]
    for line in later[:limit]:
        click.echo(msgspec.json.encode(line) if is_json else _format_line(line))
    if len(later) > limit:
        click.echo(f"more: --after {later[limit - 1].tenant}", err=True)


async def _list(
    settings: Settings,
    scan: str,
    max_units: int | None,
    progress: Progress,
    *,
    has_redis: bool,
) -> list[TenantLine]:
    from chatserver.domain.clock import SystemClock
    from chatserver.operations.tenants.tenant_list import list_tenants
    from chatserver.warm.schema.tables import DIRECTORY, TABLES

    return await list_tenants(
        settings,
        clock=SystemClock(),
        tables={"none": (), "directory": (DIRECTORY,), "all": TABLES}[scan],
        units_per_s=max_units,
        has_redis=has_redis,
        report=progress,
    )


def _format_line(line: TenantLine) -> str:
    since = ""
    if line.since_ms is not None:
        since_time = datetime.datetime.fromtimestamp(line.since_ms // 1000, datetime.UTC)
        since = f" since {since_time:%Y-%m-%d %H:%M} UTC"
    places = ", ".join(line.found_in) or "nothing"
    return f"{line.tenant:<32}  {line.state}{since}  ({places})"


@click.command("measure")
@click.argument("tenant", required=False)
@click.option(
    "--prices",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file of prices that override the built-in prices (docs/cost.md).",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@units_option
@redis_option
def measure_command(
    tenant: str | None,
    prices: Path | None,
    is_json: bool,
    max_units: int | None,
    has_redis: bool,
) -> None:
    """Measure the items, bytes and monthly cost of TENANT, or of all tenants.

    Scans all tables, even with TENANT. Lists all objects, or only those of TENANT.
    """
    settings = prepare("tenants")
    with handle_errors(), Progress("measure") as progress:
        sizes = run(_measure(settings, tenant, prices, max_units, progress, has_redis=has_redis))
    if is_json:
        click.echo(json.dumps({"tenants": msgspec.to_builtins(sizes)}))
        return
    for size in sizes:
        for line in _format_size(size):
            click.echo(line)


async def _measure(
    settings: Settings,
    tenant: str | None,
    prices: Path | None,
    max_units: int | None,
    progress: Progress,
    *,
    has_redis: bool,
) -> list[TenantSize]:
    from chatserver.domain.access.tenants import parse_tenant
    from chatserver.domain.clock import SystemClock
    from chatserver.operations.cost.prices import load_prices
    from chatserver.operations.tenants.tenant_costs import measure_tenants

    return await measure_tenants(
        settings,
        clock=SystemClock(),
        prices=load_prices(prices),
        only=None if tenant is None else parse_tenant(tenant),
        units_per_s=max_units,
        has_redis=has_redis,
        report=progress,
    )


def _format_size(size: TenantSize) -> list[str]:
    lines = [
        f"{size.tenant or '(no tenant)'}: {format_count(size.items, 'item')}, "
        f"{format_bytes(size.bytes)}, {size.usd_per_month:.4f} USD a month"
    ]
    lines += [
        f"  {part.tier:<9} {part.part:<24} {part.items:>12,} items {part.bytes:>16,} bytes "
        f"{part.usd_per_month:>12.4f} USD"
        for part in size.parts
    ]
    return lines
