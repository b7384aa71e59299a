"""Capacity plan: evaluates the model with inputs, constants and prices, and adds warnings.

The packaged constants (`constants.json`) and the results of `chatserver load` (docs/load.md) have
the same format:

    {"schema": 1, "constants": {name: {"value", "unit", "how"}}}
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from chatserver.domain.quantities import format_bytes
from chatserver.errors import ConfigError
from chatserver.operations.capacity.formula_evaluation import EvaluatedRow, compute, format_number
from chatserver.operations.capacity.plan_formulas import FORMULAS
from chatserver.operations.cost.prices import GB, Prices, RedisNode

SCHEMA: Final = 1
PARTITIONS_MAX: Final = 1024  # upper bound of CHAT_REDIS_PARTITIONS
TABLE_UNITS_QUOTA: Final = 40_000  # AWS default: maximum read or write units per second of a table
PARTITION_WRITE_UNITS: Final = 1000  # AWS: maximum write units per second of a DynamoDB partition
CHAT_SHARDS_MAX: Final = 16  # upper bound of CHAT_WARM_SHARDS_MAX

Removal = Literal["worker", "ttl"]


class Constant(msgspec.Struct, frozen=True):
    """A measured constant, and how it was measured."""

    value: float | None
    unit: str
    how: str


class Results(msgspec.Struct, frozen=True):
    """A results file; other fields are ignored."""

    schema: int
    constants: dict[str, Constant]


class CapacityPlan(msgspec.Struct, frozen=True):
    """The complete plan, tier by tier. `usd_per_month` contains each tier's cost, and the total."""

    schema: int
    inputs: dict[str, float]
    removal: Removal
    prices_as_of: str
    prices_region: str
    redis_node: str
    lines: list[EvaluatedRow]
    usd_per_month: dict[str, float]
    constants: dict[str, Constant]
    from_results: list[str]
    warnings: list[str]


def load_constants(path: Path | None = None) -> tuple[dict[str, Constant], list[str]]:
    """Return `(constants, overridden)`: all constants, and the names that the file overrides.

    Ignores constants in the file that have a negative value, no value or an unknown name.

    Raises:
        ConfigError: the file cannot be read or has the wrong format.
    """
    packaged = importlib.resources.files(__package__).joinpath("constants.json")
    constants = msgspec.json.decode(packaged.read_bytes(), type=Results).constants
    if path is None:
        return constants, []
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as exc:
        raise ConfigError(f"constants: {path}: {exc.strerror}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"constants: {path}: {exc}") from exc
    if results.schema != SCHEMA:
        raise ConfigError(f"constants: {path}: schema {results.schema}, expected {SCHEMA}")
    overridden = {
        name: constant
        for name, constant in results.constants.items()
        if name in constants and constant.value is not None and 0 <= constant.value < math.inf
    }
    return constants | overridden, sorted(overridden)


def make_plan(
    inputs: Mapping[str, float],
    removal: Removal,
    constants: Mapping[str, Constant],
    from_results: list[str],
    prices: Prices,
) -> CapacityPlan:
    """Evaluate the capacity model, and add warnings."""
    values = {
        name: constant.value for name, constant in constants.items() if constant.value is not None
    }
    all_values = values | _list_prices(prices) | dict(inputs)
    all_values["is_removed_by_worker"] = float(removal == "worker")
    lines, node = compute_plan(all_values, prices.redis.nodes, constants)
    return CapacityPlan(
        schema=SCHEMA,
        inputs=dict(inputs),
        removal=removal,
        prices_as_of=prices.as_of,
        prices_region=prices.region,
        redis_node=node.name,
        lines=lines,
        usd_per_month=_sum_costs(all_values),
        constants=dict(constants),
        from_results=from_results,
        warnings=list_warnings(all_values, node),
    )


def compute_plan(
    by_name: dict[str, float], nodes: Sequence[RedisNode], constants: Container[str]
) -> tuple[list[EvaluatedRow], RedisNode]:
    """Evaluate the capacity model; return its lines and the Redis node type.

    `by_name` contains all inputs, constants and prices; results are added to it. The node type is
    the smallest for which one cluster is enough. If there is none, it is the largest.
    """
    for node in sorted(nodes, key=lambda option: option.memory_gb):
        by_name["node_bytes"] = node.memory_gb * GB
        by_name["node_per_hour_usd"] = node.per_hour_usd
        lines = [
            line
            for tier, rows in FORMULAS.items()
            for line in compute(tier, rows, by_name, constants)
        ]
        if by_name["deployments"] <= 1:
            break
    return lines, node


def _list_prices(prices: Prices) -> dict[str, float]:
    prices_usd = {
        "dynamodb_storage_per_gb_month_usd": prices.dynamodb.storage_per_gb_month_usd,
        "s3_storage_per_gb_month_usd": prices.s3.storage_per_gb_month_usd,
    }
    for section in (prices.dynamodb, prices.s3, prices.compute, prices.network):
        prices_usd |= {
            name: value
            for name, value in msgspec.structs.asdict(section).items()
            if name != "storage_per_gb_month_usd"
        }
    return prices_usd


def _sum_costs(values: Mapping[str, float]) -> dict[str, float]:
    costs_usd = {
        "gateways": values["gateway_usd"],
        "redis": values["redis_usd"],
        "workers": values["worker_usd"],
        "dynamodb": values["on_demand_usd"] + values["dynamodb_storage_usd"],
        "s3": values["s3_usd"],
        "network": values["network_usd"],
    }
    return costs_usd | {"total": values["total_usd"]}


def list_warnings(values: Mapping[str, float], node: RedisNode) -> list[str]:
    """Return warnings about exceeded limits and cheaper options."""
    messages = []
    if values["deployments"] > 1:
        messages.append(
            f"Redis: {values['redis_nodes']:,.0f} nodes of type {node.name} are needed; one "
            f"cluster has at most {values['nodes_per_cluster']:,.0f}. Divide the users among "
            f"{values['deployments']:,.0f} deployments, each with its own tables or as a tenant "
            "(docs/tenants.md)"
        )
    elif values["partitions"] < values["masters"]:
        messages.append(
            f"Redis: {values['masters']:,.0f} masters are too many for "
            f"{PARTITIONS_MAX} partitions, the maximum of CHAT_REDIS_PARTITIONS"
        )
    quota = TABLE_UNITS_QUOTA
    messages += [
        f"DynamoDB: {peak:,.0f} {kind} units a second at the peak are more than the "
        f"{quota:,} default "
        "quota of a table; raise it in Service Quotas and pre-warm new on-demand tables"
        for kind in ("write", "read")
        if (peak := values[f"peak_{kind}_units_per_s"]) > quota
    ]
    units = values["write_units_group"]
    per_chat = PARTITION_WRITE_UNITS / units
    group_rate = values["peak"] * values["messages_per_chat_day"] / 86_400
    if group_rate > per_chat:
        most = per_chat * CHAT_SHARDS_MAX
        messages.append(
            f"DynamoDB: a chat has {group_rate:,.0f} messages a second at the peak; a partition "
            f"accepts {per_chat:,.0f}. A chat is distributed automatically over up to "
            f"{CHAT_SHARDS_MAX} shards, which accept {most:,.0f}; lower the "
            "peak if that is not enough"
        )
    if values["group_size"] > values["fanout_members_max"]:
        messages.append(
            f"Groups of more than {values['fanout_members_max']:,.0f} members have no inbox "
            f"entries: members read the chat's log (CHAT_CHATS_FANOUT_MEMBERS_MAX)"
        )
    return messages + _list_savings(values)


def _list_savings(values: Mapping[str, float]) -> list[str]:
    savings = []
    stored_bytes = values["logs_bytes"] + values["inboxes_bytes"]
    if values["redis_usd"] > values["total_usd"] / 4 and stored_bytes > values["redis_bytes"] / 2:
        savings.append(
            f"Redis: {format_bytes(stored_bytes)} of {format_bytes(values['redis_bytes'])} are "
            "logs and inboxes; try --log-max 200 and --inbox-max 200 (CHAT_REDIS_LOG_MAX, "
            "CHAT_REDIS_INBOX_MAX). Then devices that return after a long time get a snapshot, "
            "and more history is read from DynamoDB"
        )
    moved = values["is_archived"] * values["is_removed_by_worker"]
    if moved:
        saved = values["messages_per_s"] * values["write_units_message"] * 2.628
        saved *= values["write_units_per_million_usd"]
        savings.append(
            f"DynamoDB: {saved:,.0f} USD per month are for deleting archived messages; with "
            "--removal ttl, DynamoDB deletes them free of charge (docs/archive.md)"
        )
    if values["provisioned_usd"] < values["on_demand_usd"]:
        saved = values["on_demand_usd"] - values["provisioned_usd"]
        savings.append(
            f"DynamoDB: provisioned capacity would cost {saved:,.0f} USD a month less, if "
            f"{format_number(values['provisioned_used_share'] * 100)}% of it is used at the peak "
            f"(CHAT_WARM_BILLING)"
        )
    return savings
