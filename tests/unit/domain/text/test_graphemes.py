"""Text is cut between graphemes only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.text.graphemes import find_break, truncate
from chatserver.domain.text_validation import BodyBounds, clean_body
from chatserver.features.companions.providers.model_call import RemainingLength
from chatserver.features.link_previews.page_head import parse_page
from chatserver.features.push.model import truncate_text
from tests.support.written_texts import GRAPHEMES, TEXTS


@pytest.mark.parametrize("grapheme", GRAPHEMES)
def test_truncated_text_has_whole_graphemes_only(grapheme: str) -> None:
    """The same holds in pushes, link previews and responses of models."""
    text, size = f"ab{grapheme}", len(grapheme)

    assert truncate(text * 2, 2 + size) == text
    for shorter in range(1, size):
        assert truncate(text * 2, 2 + shorter) == "ab"
        assert truncate_text(text * 2, 3 + shorter) == "ab…"
        assert RemainingLength(BodyBounds(chars_max=2 + shorter), 99).truncate(text) == "ab"
    for bytes_max in range(2, 1 + len(text.encode())):
        cleaned = clean_body(text, BodyBounds(bytes_max=bytes_max))
        assert cleaned in ("ab", clean_body(text))


def test_flags_are_cut_between_two_flags() -> None:
    """A flag is a pair of letters, so the number of letters before matters."""
    assert [len(truncate("🇩🇪🇫🇷🇮🇹", length)) for length in range(7)] == [0, 0, 2, 2, 4, 4, 6]


def test_title_of_a_link_preview_is_cut_between_graphemes() -> None:
    """The limit is 200 characters."""
    page = f"<title>{'x' * 198}🇩🇪 and more</title>"

    assert parse_page(page.encode(), "text/html; charset=utf-8", "http://a.example").title == (
        "x" * 198 + "…"
    )


def test_long_run_of_marks_is_cut_anyway() -> None:
    """The search for a break is bounded."""
    assert len(truncate("a" + "\u0301" * 5_000, 1_000)) == 1_000


@given(st.sampled_from(list(TEXTS.values())), st.integers(0, 40))
def test_break_is_near_and_not_after_the_limit(text: str, at: int) -> None:
    assert at - find_break(text, min(at, len(text))) >= 0 or at > len(text)
    assert text.startswith(truncate(text, at))
