"""Encoding and decoding of a chat's write policy."""

from __future__ import annotations

import itertools

import pytest

from chatserver.domain.moderation import (
    format_strictness,
    is_blocked_gate,
    retention_s_of,
    slow_s_of,
)


@pytest.mark.parametrize(
    ("slow_s", "retention_s", "is_blocked", "pending"),
    [*itertools.product((0, 5, 86_400), (0, 60, 315_360_000), (False, True), ("", ":p"))],
)
def test_gate_says_what_it_was_made_of(
    slow_s: int, retention_s: int, is_blocked: bool, pending: str
) -> None:
    """Each demand is read by itself, whatever stands before and behind it."""
    gate = f"E1:12{format_strictness(slow_s, retention_s, is_blocked=is_blocked)}{pending}"

    assert retention_s_of(gate) == retention_s
    assert is_blocked_gate(gate) == is_blocked
    assert slow_s_of(gate) == (0 if is_blocked else slow_s)
