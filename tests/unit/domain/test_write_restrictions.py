"""Encoding and decoding of a chat's write policy."""

from __future__ import annotations

import itertools

import pytest

from chatserver.domain.write_restrictions import (
    format_write_policy,
    is_chat_blocked,
    parse_retention_s,
    parse_slow_s,
)


@pytest.mark.parametrize(
    ("slow_s", "retention_s", "is_blocked", "pending"),
    [*itertools.product((0, 5, 86_400), (0, 60, 315_360_000), (False, True), ("", ":p"))],
)
def test_write_policy_round_trips(
    slow_s: int, retention_s: int, is_blocked: bool, pending: str
) -> None:
    """Each rule is parsed correctly with any values of the others."""
    policy = f"E1:12{format_write_policy(slow_s, retention_s, is_blocked=is_blocked)}{pending}"

    assert parse_retention_s(policy) == retention_s
    assert is_chat_blocked(policy) == is_blocked
    assert parse_slow_s(policy) == (0 if is_blocked else slow_s)
