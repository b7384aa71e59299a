"""Reactions: one emoji, in one form however it was typed."""

from __future__ import annotations

import pytest

from chatserver.domain.text.emoji import EMOJI_CHARS_MAX, parse_emoji
from chatserver.errors import BadRequest, TooLarge


@pytest.mark.parametrize(
    "text",
    [
        "",
        "👍",
        "👍🏽",
        "👨‍👩‍👧‍👦",
        "👩🏻‍❤️‍💋‍👨🏿",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "🏳️‍⚧️",
        "🇩🇪",
        "❤️",
        "1️⃣",
        "©️",
        "\U0001fae8",
    ],
)
def test_parse_emoji_accepts_one_emoji(text: str) -> None:
    """This includes families, skin tones and flags; an empty text removes the reaction."""
    assert parse_emoji(text) == text


@pytest.mark.parametrize(
    "text",
    [" ", "a b", "ok", "+1", ":party:", "1", "👍👍", "👍 ", "🇩", "👨\u200d", "\u200d👍", "🏽",
     "\n", "\x00", "\u202e", "\u200b", "\ud800", "\ufeff"],
)  # fmt: skip
def test_parse_emoji_refuses_everything_else(text: str) -> None:
    """Text, several emoji, and parts of an emoji are refused."""
    with pytest.raises(BadRequest, match="emoji: must be one emoji"):
        parse_emoji(text)


def test_parse_emoji_limit_is_exact() -> None:
    """A longer text is refused before it is parsed."""
    with pytest.raises(BadRequest):
        parse_emoji("👍" * EMOJI_CHARS_MAX)
    with pytest.raises(TooLarge, match=f"emoji: must be at most {EMOJI_CHARS_MAX} code points"):
        parse_emoji("👍" * (EMOJI_CHARS_MAX + 1))


@pytest.mark.parametrize(
    ("form", "other"),
    [
        ("❤", "❤\ufe0f"),
        ("❤\ufe0e", "❤\ufe0f"),
        ("👍\ufe0f", "👍"),
        ("☺", "☺\ufe0f"),
        ("❤\u200d🔥", "❤\ufe0f\u200d🔥"),
        ("🏳\u200d🌈", "🏳\ufe0f\u200d🌈"),
        ("🕵\u200d♀", "🕵\ufe0f\u200d♀\ufe0f"),
        ("1\u20e3", "1\ufe0f\u20e3"),
        ("☝\ufe0f🏽", "☝🏽"),
        ("©", "©\ufe0f"),
    ],
)
def test_parse_emoji_returns_one_form_of_an_emoji(form: str, other: str) -> None:
    """Otherwise, the same reaction of two users would be counted apart."""
    assert parse_emoji(form) == parse_emoji(other) == other
    assert parse_emoji(other) == other


def test_parse_emoji_keeps_skin_tones_and_genders_apart() -> None:
    """They are different emoji."""
    texts = ("👍", "👍🏻", "👍🏿", "🏃", "🏃\u200d♂", "🏃\u200d♀")

    assert len({parse_emoji(text) for text in texts}) == len(texts)
