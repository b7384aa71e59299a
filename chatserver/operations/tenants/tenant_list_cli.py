"""`chatserver tenants list` and `chatserver tenants measure`."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Annotated, Final, Literal

import click
import msgspec

from chatserver.cli.process_setup import prepare
from chatserver.command_options import PricesFile, with_options
from chatserver.domain.quantities import format_bytes, format_count
from chatserver.operations.tenants.tenant_cli import (
    HasRedis,
    TenantProgress,
    UnitsMax,
    handle_tenant_errors,
)

if TYPE_CHECKING:
    from chatserver.operations.tenants.tenant_costs import TenantSize
    from chatserver.operations.tenants.tenant_list import TenantLine

PAGE_MAX: Final = 10_000


@click.command("list")
@handle_tenant_errors
@with_options
async def list_command(
    *,
    after: Annotated[str, "List only tenants after this name, for the next page."] = "",
    limit: Annotated[int, click.IntRange(1, PAGE_MAX), "Page size."] = 1000,
    scan: Annotated[
        Literal["none", "directory", "all"],
        "DynamoDB tables to scan. `all` also finds tenants that have no items in the `directory` "
        "table.",
    ] = "directory",
    is_json: Annotated[bool, "Print one JSON object per tenant."] = False,
    max_units: UnitsMax = None,
    has_redis: HasRedis = True,
) -> None:
    """List all tenants in the tables, the bucket and the configured Redis.

    The command scans tables (see --scan), because no index lists the tenants. A scan costs half a
    read unit per 4 KB.
    """
    from chatserver.domain.clock import SystemClock
    from chatserver.operations.tenants.tenant_list import list_tenants
    from chatserver.warm.schema.tables import DIRECTORY, TABLES

    settings = prepare("tenants")
    with TenantProgress("list") as progress:
        tenants = await list_tenants(
            settings,
            clock=SystemClock(),
            tables={"none": (), "directory": (DIRECTORY,), "all": TABLES}[scan],
            units_per_s=max_units,
            has_redis=has_redis,
            report=progress,
        )
    later = [tenant for tenant in tenants if tenant.tenant > after]
    for line in later[:limit]:
        click.echo(msgspec.json.encode(line) if is_json else _format_line(line))
    if len(later) > limit:
        click.echo(f"more: --after {later[limit - 1].tenant}", err=True)


def _format_line(line: TenantLine) -> str:
    since = ""
    if line.since_ms is not None:
        since_time = datetime.datetime.fromtimestamp(line.since_ms // 1000, datetime.UTC)
        since = f" since {since_time:%Y-%m-%d %H:%M} UTC"
    tiers = ", ".join(line.found_in) or "nothing"
    return f"{line.tenant:<32}  {line.state}{since}  ({tiers})"


@click.command("measure")
@click.argument("tenant", required=False)
@handle_tenant_errors
@with_options
async def measure_command(
    tenant: str | None,
    *,
    prices: PricesFile = None,
    is_json: Annotated[bool, "Print JSON."] = False,
    max_units: UnitsMax = None,
    has_redis: HasRedis = True,
) -> None:
    """Measure the items, bytes and monthly cost of TENANT, or of all tenants.

    Scans all tables, even with TENANT. Lists all objects, or only those of TENANT.
    """
    from chatserver.domain.access.tenants import parse_tenant
    from chatserver.domain.clock import SystemClock
    from chatserver.operations.cost.prices import load_prices
    from chatserver.operations.tenants.tenant_costs import measure_tenants

    settings = prepare("tenants")
    with TenantProgress("measure") as progress:
        sizes = await measure_tenants(
            settings,
            clock=SystemClock(),
            prices=load_prices(prices),
            only=None if tenant is None else parse_tenant(tenant),
            units_per_s=max_units,
            has_redis=has_redis,
            report=progress,
        )
    if is_json:
        click.echo(json.dumps({"tenants": msgspec.to_builtins(sizes)}))
        return
    for size in sizes:
        for line in _format_size(size):
            click.echo(line)


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
