"""Tokens of texts in several languages."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.text.letter_folding import fold_letter
from chatserver.features.search.tokenizer import (
    TOKEN_CHARS_MAX,
    TOKENS_MAX,
    normalize,
    tokenize,
)
from tests.support.text_corpus import CORPUS, Case


def tokens_of(text: str) -> list[str]:
    return [token.text for token in tokenize(normalize(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Lunch at ONE?", ["lunch", "at", "one"]),
        ("Größe, Straße; Müller-Lüdenscheidt", ["grosse", "strasse", "muller", "ludenscheidt"]),
        ("Cafe\u0301 CAFÉ", ["cafe", "cafe"]),
        ("snake_case v2.0", ["snake", "case", "v2", "0"]),
        ("Привет, мир! ё", ["привет", "мир", "\u0435"]),
        ("東京都", ["東京", "京都", "都"]),
        ("すぐ行く", ["すぐ", "ぐ行", "行く", "く"]),
        ("我的iPhone手机", ["我的", "的", "iphone", "手机", "机"]),
        ("\uff46\uff55\uff4c\uff4c \uff76\uff85", ["full", "カナ", "ナ"]),
        ("한국어 공부", ["한국", "국어", "어", "공부", "부"]),
        ("हिन्दी", ["हिनदी"]),
        ("\U0001f600 ok \U0001f44d\U0001f3fd", ["\U0001f600", "ok", "\U0001f44d"]),
        ("Øl æg đak ٣٤", ["ol", "aeg", "dak", "34"]),
        ("5㎏ ℃", ["5kg", "c"]),
        ("", []),
    ],
)
def test_text_is_split_and_folded(text: str, expected: list[str]) -> None:
    """Case, diacritics and width make no difference; scripts without spaces give pairs."""
    assert tokens_of(text) == expected


def test_long_words_and_texts_are_cut() -> None:
    """The size of an index entry is limited for any message."""
    assert tokens_of("x" * 1000) == ["x" * TOKEN_CHARS_MAX]
    assert len(tokens_of("a " * (TOKENS_MAX + 5))) == TOKENS_MAX
    assert len(tokens_of("é " * (TOKENS_MAX + 5))) == TOKENS_MAX
    assert len(tokens_of("東" * (TOKENS_MAX + 5))) == TOKENS_MAX


@given(st.text(max_size=80))
def test_spans_are_in_order_and_tokens_have_no_separator(text: str) -> None:
    """The search engines separate tokens by spaces and quote them."""
    text = normalize(text)
    tokens = tokenize(text)

    assert all(0 <= each.start < each.end <= len(text) for each in tokens)
    assert [each.start for each in tokens] == sorted(each.start for each in tokens)
    for each in tokens:
        assert each.text
        assert " " not in each.text and '"' not in each.text and ":" not in each.text


@given(st.text(max_size=80))
def test_folding_is_stable(text: str) -> None:
    """A folded token is folded to itself, so it finds the same text."""
    for each in tokenize(normalize(text)):
        if not each.is_gram:
            assert tokens_of(each.text)[:1] == [each.text]


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.script)
def test_texts_are_split_alike_with_and_without_ascii(case: Case) -> None:
    """A character of another script does not change the tokens of the rest."""
    tokens = tokens_of(case.text)

    assert tokens
    assert tokens_of(f"{case.text} \u2013") == tokens
    assert [token for token in tokens_of(f"abc {case.text}") if token != "abc"] == [
        token for token in tokens if token != "abc"
    ]


def test_every_character_is_folded_to_its_final_form() -> None:
    """A query of folded letters finds the text, and no token has characters of the query syntax."""
    for code in (*range(0xD800), *range(0xE000, 0x30000)):
        folded = fold_letter(letter := chr(code))

        again = folded if folded == letter else "".join(map(fold_letter, folded))
        assert unicodedata.normalize("NFC", again) == folded
        assert not set(folded) & set(' ":#')
