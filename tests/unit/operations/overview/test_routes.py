"""Daily costs for the admin page."""

from __future__ import annotations

import pytest

from chatserver.operations.cost.prices import load_prices
from chatserver.operations.overview.routes import make_cost_report
from chatserver.telemetry.dynamodb_usage import Spending

USAGE = {
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


def test_cost_report_has_days_and_features_at_on_demand_prices() -> None:
    """The most expensive feature comes first; a day without messages has no mean."""
    prices = load_prices()
    report = make_cost_report(USAGE, prices, "on_demand")

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


def test_cost_report_of_provisioned_capacity_has_no_dollars() -> None:
    """Provisioned capacity is not billed by unit, so dollars per unit would be wrong."""
    report = make_cost_report(USAGE, load_prices(), "provisioned")

    assert report.write_unit_usd is None
    assert [day.usd for day in report.days] == [None, None]
    assert report.days[0].features[0].usd is None
    assert report.days[0].features[0].write_units == 4_000_000
