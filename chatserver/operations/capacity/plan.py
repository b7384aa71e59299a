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

from chatserver.errors import ConfigError
from chatserver.operations.capacity.formula_evaluation import Line, compute
from chatserver.operations.capacity.plan_formulas import FORMULAS
from chatserver.operations.capacity.plan_warnings import list_warnings
from chatserver.operations.cost.prices import GB, Prices, RedisNode

SCHEMA: Final = 1
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


class Plan(msgspec.Struct, frozen=True):
    """The complete plan, tier by tier. `usd_per_month` contains each tier's cost, and the total."""

    schema: int
    inputs: dict[str, float]
    removal: Removal
    prices_as_of: str
    prices_region: str
    redis_node: str
    lines: list[Line]
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
        raise ConfigError([f"constants: {path}: {exc.strerror}"]) from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ConfigError([f"constants: {path}: {exc}"]) from exc
    if results.schema != SCHEMA:
        raise ConfigError([f"constants: {path}: schema {results.schema}, expected {SCHEMA}"])
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
) -> Plan:
    """Evaluate the capacity model, and add warnings."""
    values = {
        name: constant.value for name, constant in constants.items() if constant.value is not None
    }
    all_values = values | _list_prices(prices) | dict(inputs)
    all_values["is_removed_by_worker"] = float(removal == "worker")
    lines, node = compute_plan(all_values, prices.redis.nodes, constants)
    return Plan(
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
) -> tuple[list[Line], RedisNode]:
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
