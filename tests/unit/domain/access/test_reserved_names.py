"""Reserved user names."""

from __future__ import annotations

import pytest

from chatserver.domain.access.reserved_names import RESERVED_NAMES, ReservedNames


@pytest.mark.parametrize(
    "name",
    ["admin", "ADMIN", "adm1n", "a-d-m-i-n", "adrnin", "r00t", "supp0rt", "5upport", "no_reply"],
)
def test_reserved_name_is_detected_in_any_spelling(name: str) -> None:
    """Case, digits that look like letters, and separators do not make another name."""
    assert name in ReservedNames(RESERVED_NAMES)


@pytest.mark.parametrize("name", ["alice", "admiral", "rooster", "supporter", "zoe-1"])
def test_name_that_contains_a_reserved_one_is_free(name: str) -> None:
    """Only whole names are reserved."""
    assert name not in ReservedNames(RESERVED_NAMES)


def test_operator_configures_the_reserved_names() -> None:
    """An empty list reserves nothing."""
    assert "4cme" in ReservedNames(["acme"])
    assert "admin" not in ReservedNames([])
