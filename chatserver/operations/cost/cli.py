"""`chatserver cost`: report DynamoDB usage by feature and chat, and storage by tier."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import PricesFile, with_options
from chatserver.config import Settings
from chatserver.domain.quantities import format_count
from chatserver.errors import ChatError, ConfigError, Unavailable

if TYPE_CHECKING:
    from chatserver.operations.cost.prices import Prices
    from chatserver.operations.cost.report import CostSummary, StorageCost, UnitCost
    from chatserver.operations.cost.stored_sizes import TableSize
    from chatserver.telemetry.dynamodb_usage import Spending

DAYS_MAX = 40  # number of days for which usage data is kept
CHATS_SHOWN_MAX = 500


@click.command()
@with_options
async def cost(
    *,
    days: Annotated[int, click.IntRange(1, DAYS_MAX), "Number of days (UTC), including today."] = 7,
    is_json: Annotated[bool, "Print JSON."] = False,
    prices_file: PricesFile = None,
    chats: Annotated[
        int, click.IntRange(1, CHATS_SHOWN_MAX), "Number of chats to print, most expensive first."
    ] = 10,
    objects_max: Annotated[
        int, click.IntRange(0, 10_000_000), "Maximum number of bucket objects to list; 0: skip S3."
    ] = 100_000,
) -> None:
    """Report DynamoDB usage, in units and dollars, and the data stored in each tier.

    The command reads the usage that workers and API processes record in Redis, and queries each
    tier for its size. If a tier does not respond, the report omits it and the exit code is 1.
    """
    settings = prepare("cost")
    from chatserver.operations.cost.prices import load_prices

    prices = load_prices(prices_file)
    today = datetime.datetime.now(datetime.UTC).date()
    names = [(today - datetime.timedelta(n)).isoformat() for n in reversed(range(days))]
    report = await _report(settings, prices, names, chats, objects_max)
    if is_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=1).decode())
    else:
        for line in report_lines(report):
            click.echo(line)
    if report.problems:
        raise click.ClickException("incomplete: " + "; ".join(report.problems))


async def _report(
    settings: Settings, prices: Prices, days: list[str], chats: int, objects_max: int
) -> CostSummary:
    from chatserver.operations.cost import report as costs

    problems: list[str] = []
    spent, redis = await _read_redis(settings, prices, days, problems)
    capacities, tables = await _read_dynamodb(settings, prices, problems)
    bucket = await _read_s3(settings, prices, objects_max, problems) if objects_max else []
    rates = costs.on_demand_rates(prices)
    if settings.warm.billing == "provisioned":
        rates = costs.compute_provisioned_rates(prices, capacities, spent, len(days))
    total = costs.total_line(spent, rates)
    return costs.CostSummary(
        tenant=settings.warm.tenant,
        days=days,
        prices_as_of=prices.as_of,
        prices_region=prices.region,
        billing=settings.warm.billing,
        messages=spent.messages,
        features=costs.build_feature_lines(spent, rates),
        total=total,
        per_message=costs.build_message_line(total, spent.messages),
        chats=costs.build_chat_lines(spent, rates, chats),
        chats_error_units=costs.compute_chats_error(spent),
        tiers=[*redis, *tables, *bucket],
        problems=problems,
    )


async def _read_redis(
    settings: Settings, prices: Prices, days: list[str], problems: list[str]
) -> tuple[Spending, list[StorageCost]]:
    from chatserver.cli.process_setup import require_redis
    from chatserver.hot.redis.factory import open_hot
    from chatserver.hot.redis.memory_usage import list_memory
    from chatserver.operations.cost import report as costs
    from chatserver.operations.cost.hot import UsageTotals

    try:
        require_redis(settings.redis)
        async with open_hot(settings.redis) as hot:
            totals = UsageTotals(hot)
            spent = costs.sum_days([await totals.get_day(day) for day in days])
            servers = await list_memory(hot)
    except Unavailable as exc:
        problems.append(f"no units and no Redis data: {exc.message}")
        return costs.sum_days(()), []
    lines = [
        costs.build_redis_line(server.server, server.keys, server.bytes, prices)
        for server in servers
    ]
    return spent, lines


async def _read_dynamodb(
    settings: Settings, prices: Prices, problems: list[str]
) -> tuple[list[TableSize], list[StorageCost]]:
    from chatserver.operations.cost import report as costs
    from chatserver.operations.cost.stored_sizes import list_sizes
    from chatserver.warm.dynamo.connections import open_dynamodb

    try:
        async with open_dynamodb(settings.warm) as dynamodb:
            sizes = await list_sizes(dynamodb.for_feature("operations"), settings.warm)
    except (Unavailable, ConfigError) as exc:
        problems.append(f"no DynamoDB sizes: {exc.message}")
        return [], []
    price = prices.dynamodb.storage_per_gb_month_usd
    lines = [
        costs.build_stored_line("dynamodb", size.name, size.items, size.bytes, price)
        for size in sizes
    ]
    return sizes, lines


async def _read_s3(
    settings: Settings, prices: Prices, objects_max: int, problems: list[str]
) -> list[StorageCost]:
    from chatserver.cold.client import open_s3
    from chatserver.operations.cost import report as costs
    from chatserver.operations.cost.stored_sizes import list_prefix_sizes

    try:
        async with open_s3(settings.cold) as store:
            prefix_sizes, is_all = await list_prefix_sizes(store, objects_max)
    except ChatError as exc:
        problems.append(f"no S3 sizes: {exc.message}")
        return []
    if not is_all:
        problems.append(f"S3: only about {objects_max:,} objects were listed; raise --objects-max")
    price = prices.s3.storage_per_gb_month_usd
    return [
        costs.build_stored_line("s3", size.prefix, size.objects, size.bytes, price)
        for size in prefix_sizes
    ]


def report_lines(report: CostSummary) -> list[str]:
    tenant = f", tenant {report.tenant}" if report.tenant else ""
    lines = [
        f"{report.days[0]} to {report.days[-1]} (UTC){tenant}; "
        f"{format_count(report.messages, 'message')} stored",
        f"prices of {report.prices_region} as of {report.prices_as_of}, {report.billing}",
        "",
        "DynamoDB units",
        *(_format_line(line) for line in report.features),
        _format_line(report.total),
    ]
    if report.per_message is not None:
        per_message = report.per_message
        lines.append(
            f"  a message: {per_message.write_units:.3f} write units, "
            f"{per_message.read_units:.3f} read units, "
            f"{per_message.usd:.9f} USD = {per_message.formula}"
        )
    if report.chats:
        error = report.chats_error_units
        lines += [
            "",
            f"most expensive chats (each may have used up to {error['write']:,.1f} more write and "
            f"{error['read']:,.1f} more read units)",
            *(_format_line(line) for line in report.chats),
        ]
    if report.tiers:
        shared = ", of all tenants" if report.tenant else ""
        lines += ["", f"storage per month (DynamoDB: updated every few hours{shared})"]
        lines += [
            f"  {tier.tier:<9} {tier.name:<24} {tier.items:>12,} items {tier.bytes:>16,} bytes "
            f"{tier.usd:>12.4f} USD = {tier.formula}"
            for tier in report.tiers
        ]
    return lines


def _format_line(line: UnitCost) -> str:
    return (
        f"  {line.name:<20} {line.table:<12} {line.write_units:>14,.1f} write "
        f"{line.read_units:>14,.1f} read {line.usd:>12.6f} USD = {line.formula}"
    )
