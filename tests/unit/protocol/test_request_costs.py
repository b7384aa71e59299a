"""Request costs: every cost fits into its bucket."""

from __future__ import annotations

import pytest

from chatserver.protocol.request_costs import (
    BASE,
    CHANGE,
    CPU_MS_PER_TOKEN,
    REQUEST_COST_MAX,
    ROUTE_COSTS,
    SEARCH,
    compute_route_cost,
    compute_search_charge,
)


def test_no_route_costs_more_than_the_smallest_burst() -> None:
    """With any settings, every valid request fits into the rate limit."""
    assert max(ROUTE_COSTS.values()) <= REQUEST_COST_MAX


def test_profile_change_costs_as_much_as_other_transactions() -> None:
    """A rename of a discoverable user also replaces up to 16 search entries."""
    assert compute_route_cost("PATCH", "/v1/me", None) == CHANGE


def test_cost_of_a_route_grows_with_its_limit() -> None:
    """A page of 200 costs more than one of 10; an invalid limit has the base cost."""
    path = "/v1/users/{user:str}/posts"
    assert compute_route_cost("GET", path, None) == BASE
    assert compute_route_cost("GET", path, "200") == BASE + 4
    assert compute_route_cost("GET", path, "9" * 50) == BASE
    assert compute_route_cost("GET", path, "-5") == BASE
    assert compute_route_cost("POST", "/v1/me/export", None) == REQUEST_COST_MAX


@pytest.mark.parametrize("name", ["messages", "sent", "received"])
def test_lists_of_all_chats_cost_as_much_as_a_search(name: str) -> None:
    """Each may read many chats for a page."""
    assert compute_route_cost("GET", f"/v1/me/{name}", None) == SEARCH


def test_search_is_charged_only_for_cpu_time_beyond_its_cost() -> None:
    """A usual search costs what was charged before; a long one pays for all of its CPU time."""
    assert compute_search_charge(SEARCH * CPU_MS_PER_TOKEN / 1000) == 0
    assert compute_search_charge(4.0) == 4000 / CPU_MS_PER_TOKEN - SEARCH
