"""Tests of chatserver.domain.access.reserved_names."""

from __future__ import annotations

import pytest

from chatserver.domain.access.reserved_names import RESERVED_NAMES, ReservedNames


@pytest.mark.parametrize(
    "name",
    ["admin", "ADMIN", "adm1n", "a-d-m-i-n", "adrnin", "r00t", "supp0rt", "5upport", "no_reply"],
)
def test_reserved_name_is_found_however_it_is_spelled(name: str) -> None:
    """Case, digits that look like letters, and separators make no other name."""
    assert name in ReservedNames(RESERVED_NAMES)


@pytest.mark.parametrize("name", ["alice", "admiral", "rooster", "supporter", "zoe-1"])
def test_name_that_only_begins_like_a_reserved_one_is_free(name: str) -> None:
    """Only whole names are reserved."""
    assert name not in ReservedNames(RESERVED_NAMES)


def test_operator_reserves_names_of_their_own() -> None:
    """The list is a setting; an empty one reserves nothing."""
    assert "4cme" in ReservedNames(["acme"])
    assert "admin" not in ReservedNames([])
