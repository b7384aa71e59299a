"""The cost report: dollars for units and bytes, each with its formula."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver.errors import ConfigError
from chatserver.operations.cost import report as costs
from chatserver.operations.cost.prices import load_prices
from chatserver.operations.cost.stored_sizes import TableSize
from chatserver.telemetry.dynamodb_usage import CHATS_MAX, Spending

PRICES = load_prices()
USAGE = Spending(
    {
        ("persist", "messages", "write"): 3_000_000.0,
        ("persist", "messages", "read"): 1_000_000.0,
        ("history", "messages", "read"): 9_000_000.0,
        ("accounts", "directory", "write"): 1_000_000.0,
    },
    {"write": {"a": 100.0, "b": 5.0}, "read": {"b": 1_000.0}},
    {"write": 105.0 + CHATS_MAX + 1, "read": 1_000.0},
    1_000_000,
)


def value_of(formula: str) -> float:
    """Evaluate a formula without its unit names."""
    for word in (" provisioned", " used", " h", " a month", " messages", ","):
        formula = formula.replace(word, "")
    return float(eval(formula.replace("^", "**"), {"__builtins__": {}}))


def test_on_demand_cost_is_units_times_price_per_million() -> None:
    """The most expensive feature comes first; the total is the sum."""
    rates = costs.on_demand_rates(PRICES)

    lines = costs.build_feature_lines(USAGE, rates)
    total = costs.total_line(USAGE, rates)
    each = costs.build_message_line(total, USAGE.messages)

    assert [(line.name, line.table, round(line.usd, 9)) for line in lines] == [
        ("persist", "messages", 2.0),
        ("history", "messages", 1.125),
        ("accounts", "directory", 0.625),
    ]
    assert total.usd == pytest.approx(3.75)
    assert each is not None
    assert (each.write_units, each.read_units) == (4.0, 10.0)
    assert each.usd == pytest.approx(3.75 / 1_000_000)
    for line in (*lines, total, each):
        assert value_of(line.formula) == pytest.approx(line.usd)


def test_provisioned_cost_is_shared_in_proportion_to_usage() -> None:
    """The cost of unused capacity is divided over the features too."""
    provisioned = [
        TableSize("messages", 0, 0, 100, 50),
        TableSize("m/sender", 0, 0, 100, 50),
    ]
    rates = costs.compute_provisioned_rates(PRICES, provisioned, USAGE, 10)

    lines = costs.build_feature_lines(USAGE, rates)
    total = costs.total_line(USAGE, rates)

    assert total.usd == pytest.approx(200 * 240 * 0.00065 + 100 * 240 * 0.00013)
    assert sum(line.usd for line in lines) == pytest.approx(total.usd)
    for line in (*lines, total):
        assert value_of(line.formula) == pytest.approx(line.usd)


def test_most_expensive_chats_come_first_with_an_error_bound() -> None:
    """Chats are ordered by dollars: a write unit costs five times a read unit."""
    rates = costs.on_demand_rates(PRICES)

    lines = costs.build_chat_lines(USAGE, rates)

    assert [(line.name, line.write_units, line.read_units) for line in lines] == [
        ("b", 5.0, 1_000.0),
        ("a", 100.0, 0.0),
    ]
    assert [line.name for line in costs.build_chat_lines(USAGE, rates, 1)] == ["b"]
    assert costs.compute_chats_error(USAGE) == {"read": 0.0, "write": 1.0}


def test_sum_days_adds_units_chats_and_messages() -> None:
    """The sum of zero days is empty and has no cost per message."""
    both = costs.sum_days([USAGE, USAGE])

    assert both.units["history", "messages", "read"] == 18_000_000.0
    assert both.chats["write"] == {"a": 200.0, "b": 10.0}
    assert (both.messages, both.chat_totals["read"]) == (2_000_000, 2_000.0)
    assert costs.sum_days(()).is_empty
    assert (
        costs.build_message_line(costs.total_line(USAGE, costs.on_demand_rates(PRICES)), 0) is None
    )


def test_storage_cost_is_bytes_times_monthly_price() -> None:
    """Each tier has its own price."""
    table = costs.build_stored_line("dynamodb", "messages", 3, 2**31, 0.25)
    redis = costs.build_redis_line("r", 3, 2**31, PRICES)

    assert table.usd == 0.5
    assert redis.usd == pytest.approx(2 * 730 * 0.0168)
    for line in (table, redis):
        assert value_of(line.formula) == pytest.approx(line.usd)


def test_prices_of_a_file_override_the_package(tmp_path: Path) -> None:
    """Prices that the file does not contain stay unchanged."""
    file = tmp_path / "prices.toml"
    file.write_text('as_of = "2031-01"\n[dynamodb]\nread_units_per_million_usd = 7\n', "utf-8")

    prices = load_prices(file)

    assert (prices.as_of, prices.region) == ("2031-01", "us-east-1")
    assert prices.dynamodb.read_units_per_million_usd == 7
    assert prices.dynamodb.write_units_per_million_usd == 0.625
    assert prices.s3 == PRICES.s3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[dynamodb]\nreads = 1\n", "reads"),
        ("[dynamodb]\nread_units_per_million_usd = -1\n", "read_units_per_million_usd"),
        ('[s3]\nstorage_per_gb_month_usd = "x"\n', "storage_per_gb_month_usd"),
        ("s3 = 3\n", "s3"),
        ("[", "not TOML"),
        (None, "No such file"),
    ],
)
def test_invalid_prices_are_refused_by_name(tmp_path: Path, text: str | None, why: str) -> None:
    """An unknown or invalid price is an error, not ignored."""
    file = tmp_path / "prices.toml"
    if text is not None:
        file.write_text(text, "utf-8")

    with pytest.raises(ConfigError, match=why):
        load_prices(file)
