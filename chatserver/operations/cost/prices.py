"""Prices: packaged defaults, which a file may override in whole or in part."""

from __future__ import annotations

import importlib.resources
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from chatserver.errors import ConfigError

HOURS_PER_MONTH: Final = 730  # as in the AWS Pricing Calculator
HOURS_PER_DAY: Final = 24
GB: Final = 2**30

Usd = Annotated[float, msgspec.Meta(ge=0)]


class DynamodbPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``[dynamodb]``."""

    write_units_per_million_usd: Usd
    read_units_per_million_usd: Usd
    write_unit_per_hour_usd: Usd
    read_unit_per_hour_usd: Usd
    storage_per_gb_month_usd: Usd
    pitr_per_gb_month_usd: Usd


class S3Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``[s3]``."""

    storage_per_gb_month_usd: Usd
    puts_per_thousand_usd: Usd
    gets_per_thousand_usd: Usd


class RedisNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``[[redis.nodes]]``: a machine type; memory in GiB."""

    name: str
    memory_gb: Annotated[float, msgspec.Meta(gt=0)]
    per_hour_usd: Usd


class RedisPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``[redis]``."""

    memory_per_gb_hour_usd: Usd
    nodes: Annotated[list[RedisNode], msgspec.Meta(min_length=1, max_length=100)]


class ComputePrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``[compute]``."""

    core_per_hour_usd: Usd
    memory_per_gb_hour_usd: Usd


class NetworkPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``[network]``."""

    egress_per_gb_usd: Usd


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices in US dollars; each field name states its unit."""

    as_of: str
    region: str
    dynamodb: DynamodbPrices
    s3: S3Prices
    redis: RedisPrices
    compute: ComputePrices
    network: NetworkPrices


def load_prices(path: Path | None = None) -> Prices:
    """Return the packaged prices, overridden by the prices in the file `path`.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or contains an invalid price.
    """
    packaged = importlib.resources.files(__package__).joinpath("prices.toml")
    prices = tomllib.loads(packaged.read_text("utf-8"))
    if path is not None:
        try:
            own = tomllib.loads(path.read_text("utf-8"))
        except OSError as exc:
            raise ConfigError(f"prices: {path}: {exc.strerror}") from exc
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise ConfigError(f"prices: {path} is not TOML: {exc}") from exc
        prices = _merge(prices, own)
    try:
        return msgspec.convert(prices, Prices)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"prices: {path}: {exc}") from exc


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        old = below.get(name)
        is_section = isinstance(old, dict) and isinstance(value, dict)
        merged[name] = _merge(old, value) if is_section else value  # type: ignore[arg-type]  # both are dicts
    return merged
