"""Mentions in the text of a message."""

from __future__ import annotations

import pytest

from chatserver.features.push.model import MENTIONS_MAX, find_mentions


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("@bob hello", ["bob"]),
        ("hello (@bob), @carol_1 and @bob", ["bob", "carol_1"]),
        ("mail a@b.example, @@bob, @", []),
        (" ".join(f"@u{n}" for n in range(80)), [f"u{n}" for n in range(MENTIONS_MAX)]),
    ],
)
def test_mentions_are_complete_names_after_an_at_sign(body: str, names: list[str]) -> None:
    """An email address is not a mention, and no user is mentioned twice."""
    assert find_mentions(body) == names
