"""Cost report of `chatserver cost`: the cost of DynamoDB usage and of storage. No I/O.

Each cost is a `UnitCost` or `StorageCost`: an amount in dollars, and its formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from chatserver.operations.cost.prices import GB, HOURS_PER_DAY, HOURS_PER_MONTH, Prices
from chatserver.operations.cost.stored_sizes import TableSize
from chatserver.telemetry.dynamodb_usage import CHATS_MAX, KINDS, Kind, Spending

TOP_CHATS: Final = 10
Billing = Literal["on_demand", "provisioned"]


class UnitCost(msgspec.Struct, frozen=True):
    """Cost of DynamoDB units, with the formula."""

    name: str
    table: str
    write_units: float
    read_units: float
    usd: float
    formula: str


class StorageCost(msgspec.Struct, frozen=True):
    """Cost of stored data. `items` is the number of objects, keys or items; `usd` is per month."""

    tier: str
    name: str
    items: int
    bytes: int
    usd: float
    formula: str


class CostSummary(msgspec.Struct, frozen=True):
    """The complete report. A tier that did not respond appears only in `problems`."""

    tenant: str
    days: list[str]
    prices_as_of: str
    prices_region: str
    billing: Billing
    messages: int
    features: list[UnitCost]
    total: UnitCost
    per_message: UnitCost | None
    chats: list[UnitCost]
    chats_error_units: dict[str, float]
    tiers: list[StorageCost]
    problems: list[str]


class Rates(msgspec.Struct, frozen=True):
    """Price per unit: as a number in dollars, and as the text shown in formulas."""

    write_usd: float
    read_usd: float
    write_text: str
    read_text: str

    def build_line(self, name: str, table: str, write: float, read: float) -> UnitCost:
        usd = write * self.write_usd + read * self.read_usd
        formula = f"{write:,.1f} * {self.write_text} + {read:,.1f} * {self.read_text}"
        return UnitCost(
            name=name,
            table=table,
            write_units=write,
            read_units=read,
            usd=usd,
            formula=formula,
        )


def sum_days(days: Iterable[Spending]) -> Spending:
    units: dict[tuple[str, str, str], float] = {}
    chats: dict[Kind, dict[str, float]] = {kind: {} for kind in KINDS}
    totals: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
    messages = 0
    for day in days:
        messages += day.messages
        for key, amount in day.units.items():
            units[key] = units.get(key, 0.0) + amount
        for kind in KINDS:
            totals[kind] += day.chat_totals.get(kind, 0.0)
            for chat, amount in day.chats.get(kind, {}).items():
                chats[kind][chat] = chats[kind].get(chat, 0.0) + amount
    return Spending(units, chats, totals, messages)


def on_demand_rates(prices: Prices) -> Rates:
    write = prices.dynamodb.write_units_per_million_usd
    read = prices.dynamodb.read_units_per_million_usd
    return Rates(write / 1e6, read / 1e6, f"{write:g}/1,000,000", f"{read:g}/1,000,000")


def compute_provisioned_rates(
    prices: Prices, capacities: Sequence[TableSize], spending: Spending, days: int
) -> Rates:
    """Return the effective price per used unit with provisioned billing."""
    hours = days * HOURS_PER_DAY

    def compute_rate(kind: Kind, units: int, price: float) -> tuple[float, str]:
        used = _sum_units(spending, kind)
        text = f"({units} provisioned * {hours} h * {price:g} / {used:,.1f} used)"
        return units * hours * price / used if used else 0.0, text

    write_units = sum(capacity.write_units for capacity in capacities)
    read_units = sum(capacity.read_units for capacity in capacities)
    write = compute_rate("write", write_units, prices.dynamodb.write_unit_per_hour_usd)
    read = compute_rate("read", read_units, prices.dynamodb.read_unit_per_hour_usd)
    return Rates(write[0], read[0], write[1], read[1])


def _sum_units(spending: Spending, kind: Kind) -> float:
    return sum(amount for (_, _, spent), amount in spending.units.items() if spent == kind)


def build_feature_lines(spending: Spending, rates: Rates) -> list[UnitCost]:
    """Return a line for each feature and table, most expensive first."""
    names = {(feature, table) for feature, table, _ in spending.units}
    lines = [
        rates.build_line(
            feature,
            table,
            spending.units.get((feature, table, "write"), 0.0),
            spending.units.get((feature, table, "read"), 0.0),
        )
        for feature, table in names
    ]
    return sorted(lines, key=lambda line: (-line.usd, line.name, line.table))


def build_chat_lines(spending: Spending, rates: Rates, count: int = TOP_CHATS) -> list[UnitCost]:
    writes, reads = spending.chats["write"], spending.chats["read"]
    lines = [
        rates.build_line(chat, "", writes.get(chat, 0.0), reads.get(chat, 0.0))
        for chat in {*writes, *reads}
    ]
    return sorted(lines, key=lambda line: (-line.usd, line.name))[:count]


def compute_chats_error(spending: Spending) -> dict[str, float]:
    """Return by how many write units and read units a chat may be undercounted."""
    errors: dict[str, float] = {}
    for kind in KINDS:
        listed = sum(spending.chats[kind].values())
        missing = max(0.0, spending.chat_totals.get(kind, 0.0) - listed)
        errors[kind] = missing / (CHATS_MAX + 1)
    return errors


def build_stored_line(tier: str, name: str, items: int, size: int, price: float) -> StorageCost:
    """Return the storage cost per month; `price` is per GB per month."""
    formula = f"{size:,} / 2^30 * {price:g} a month"
    return StorageCost(
        tier=tier,
        name=name,
        items=items,
        bytes=size,
        usd=size / GB * price,
        formula=formula,
    )


def build_redis_line(name: str, items: int, size: int, prices: Prices) -> StorageCost:
    price = prices.redis.memory_per_gb_hour_usd
    usd = size / GB * price * HOURS_PER_MONTH
    formula = f"{size:,} / 2^30 * {price:g} * {HOURS_PER_MONTH} h"
    return StorageCost(tier="redis", name=name, items=items, bytes=size, usd=usd, formula=formula)


def total_line(spending: Spending, rates: Rates) -> UnitCost:
    return rates.build_line("all", "", _sum_units(spending, "write"), _sum_units(spending, "read"))


def build_message_line(total: UnitCost, messages: int) -> UnitCost | None:
    """Return the cost per message, including all related work; None if there are no messages."""
    if not messages:
        return None
    return UnitCost(
        name="per message",
        table="",
        write_units=total.write_units / messages,
        read_units=total.read_units / messages,
        usd=total.usd / messages,
        formula=f"{total.usd:.6f} / {messages:,} messages",
    )
