"""Costs of days, as the admin page gets them."""

from __future__ import annotations

import pytest

from chatserver.operations.cost.prices import load_prices
from chatserver.operations.overview.routes import make_cost_report
from chatserver.telemetry.dynamodb_usage import Spending

SPENT = {
    "2026-01-02": Spending(
        {
            ("persist", "messages", "write"): 3_000_000.0,
            ("persist", "directory", "write"): 1_000_000.0,
            ("history", "messages", "read"): 8_000_000.0,
        },
        {"write": {"c1": 2_000_000.0}, "read": {"c2": 1.0}},
        {"write": 2_000_000.0, "read": 1.0},
        1_000_000,
    ),
    "2026-01-01": Spending({}, {"write": {}, "read": {}}, {}, 0),
}


def test_cost_is_told_by_day_and_feature_at_on_demand_prices() -> None:
    """Tables of a feature together, the dearest first; of a day without messages no mean."""
    prices = load_prices()
    report = make_cost_report(SPENT, prices, "on_demand")

    today, before = report.days
    assert [(each.feature, each.write_units) for each in today.features] == [
        ("persist", 4_000_000),
        ("history", 0),
    ]
    usd = 4 * prices.dynamodb.write_units_per_million_usd
    usd += 8 * prices.dynamodb.read_units_per_million_usd
    assert today.usd == pytest.approx(usd)
    assert today.usd_per_message == pytest.approx(usd / 1_000_000)
    assert (before.usd, before.usd_per_message, before.features) == (0, None, [])
    assert [each.feature for each in report.chats] == ["c1", "c2"]


def test_cost_of_provisioned_capacity_is_not_told_in_dollars() -> None:
    """Units are not what is paid then: no figure is better than a wrong one."""
    report = make_cost_report(SPENT, load_prices(), "provisioned")

    assert report.write_unit_usd is None
    assert [day.usd for day in report.days] == [None, None]
    assert report.days[0].features[0].usd is None
    assert report.days[0].features[0].write_units == 4_000_000
