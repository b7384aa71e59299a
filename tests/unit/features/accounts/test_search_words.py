"""Words of the user search: which input finds which user."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.accounts.search_words import (
    WORD_CHARS_MAX,
    WORDS_MAX,
    is_match,
    list_search_words,
    split_words,
)
from tests.support.text_corpus import CORPUS, Case


@pytest.mark.parametrize(
    ("query", "user", "name"),
    [
        ("asa", "u1", "Åsa Müller"),
        ("MULL as", "u1", "Åsa Müller"),
        ("strasse", "u1", "Straße"),
        ("smith-j", "jane_smith-jones", None),
        ("jane", "jane_smith", "The Boss"),
        ("明", "u1", "李明"),
        ("ﬁn", "u1", "Fin"),
        ("김", "u1", "김민수"),
        ("o'n", "u1", "Sean O'Neill"),
        ("민수", "u1", "김민수"),
        ("木", "u1", "佐々木"),
        ("oberg luk", "u1", "Łukasz Øberg"),
        ("isik", "u1", "I\u015f\u0131k"),
        ("सुनी", "u1", "सुनील"),
        ("สุดา", "u1", "ศรี สุดา"),
        ("muller", "u1", "Mül\u00adler"),
    ],
)
def test_user_is_found_by_word_prefixes(query: str, user: str, name: str | None) -> None:
    """Case, accents and Unicode forms do not matter."""
    assert is_match(split_words(query), list_search_words(user, name))


@pytest.mark.parametrize("query", ["sa", "asa x", "muller asa b"])
def test_user_is_not_found_by_other_words(query: str) -> None:
    """Each word of the input must be the beginning of a word of the user."""
    assert not is_match(split_words(query), list_search_words("u1", "Åsa Müller"))


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.script)
def test_user_in_any_script_is_found_by_the_name(case: Case) -> None:
    """Whole words and their beginnings find the name; the same folding applies to both."""
    words = list_search_words("u1", case.name)

    assert is_match(split_words(case.name), words)
    assert is_match([word[:2] for word in split_words(case.name.upper())], words)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("dorde", "Đorđe"),
        ("aero", "Ærø"),
        ("danjuma", "Ɗanjuma"),
        ("\u0643\u064a\u0627\u0646", "کیان"),
        ("\u064a\u0627\u0633\u0645", "یاسمین"),
    ],
)
def test_user_is_found_by_the_letters_that_people_type(query: str, name: str) -> None:
    """Letters with strokes, ligatures, and Persian and Arabic forms."""
    assert is_match(split_words(query), list_search_words("u1", name))


def test_vowel_signs_do_not_divide_a_word() -> None:
    """A name in Devanagari or Thai is not found by its first letter and those after vowel signs."""
    assert split_words("सुनील") == ["सुनील"]
    assert not is_match(split_words("सुनील"), list_search_words("u1", "सीता नीरज लता"))


@given(user=st.from_regex(r"[a-z0-9][a-z0-9_-]{2,31}", fullmatch=True), name=st.text(max_size=80))
def test_words_are_bounded_and_each_finds_the_user(user: str, name: str) -> None:
    """Words are part of a key and must not contain its separator."""
    words = list_search_words(user, name)

    assert len(words) <= WORDS_MAX
    assert all(0 < len(word) <= WORD_CHARS_MAX and "#" not in word for word in words)
    assert len(set(words)) == len(words)
    for word in words:
        assert is_match(split_words(word), words)
