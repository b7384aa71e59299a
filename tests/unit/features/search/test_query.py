"""Search queries: syntax, errors, matching and snippets."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import BadRequest
from chatserver.features.search.query import (
    QUERY_TOKENS_MAX,
    TERMS_MAX,
    Query,
    Term,
    parse_query,
)
from chatserver.features.search.text_matching import SNIPPET_CHARS, find_spans, make_snippet
from chatserver.features.search.tokenizer import normalize, tokenize
from tests.support.text_corpus import CORPUS, Case

DAY_US = 86_400_000_000


def is_found(query: str, text: str) -> bool:
    return find_spans(parse_query(query, "me-user").terms, normalize(text)) is not None


def test_all_parts_of_the_syntax_are_parsed() -> None:
    """Filters may be anywhere; names are case-insensitive."""
    found = parse_query(
        'lunch FROM:me "at one" in:g-1 has:file after:1970-01-02 before:1970-01-03 caf', "alice"
    )

    assert found == Query(
        terms=(Term(("lunch",)), Term(("at", "one")), Term(("caf",), is_prefix=True)),
        sender="alice",
        chat="g-1",
        has_file=True,
        after_ts=DAY_US,
        before_ts=2 * DAY_US,
    )


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("lun", "Lunch at one?", True),  # the last word may be incomplete
        ("lun ", "Lunch at one?", False),  # not if a space follows
        ('"lun"', "Lunch at one?", False),
        ("lun one", "Lunch at one?", False),
        ("one lunch", "Lunch at one?", True),
        ('"one lunch"', "Lunch at one?", False),
        ('"lunch at"', "LUNCH, at one", True),
        ("grosse", "Die Größe", True),
        ("größe", "GROSSE", True),
        ("東京", "東京都に行く", True),
        ("京都", "東京都に行く", True),
        ("東都", "東京都に行く", False),
        ("都", "東京都に行く", True),
        ("東京都", "東京", False),
        ("行く", "すぐ行く", True),
        ("手机", "我的iPhone手机很好", True),
        ("iphone手机", "我的iPhone手机很好", True),
        ("don't", "I don't know", True),
        ("user@example.com", "mail user@example.com now", True),
        ("lunch dinner", "lunch", False),
    ],
)
def test_text_matches_as_documented(query: str, text: str, *, expected: bool) -> None:
    """All words, phrases in order, prefix of the last word, and pairs in Chinese and Japanese."""
    assert is_found(query, text) is expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "must have a word"),
        ("?!", "must have a word"),
        ('"open', "not closed"),
        ("x" * 501, "at most 500 characters"),
        ("a " * (TERMS_MAX + 1), f"at most {TERMS_MAX}"),
        ('"' + "a " * QUERY_TOKENS_MAX + '" "b"', f"at most {QUERY_TOKENS_MAX} words"),
        ("東" * (QUERY_TOKENS_MAX + 2), f"at most {QUERY_TOKENS_MAX} words"),
        ("from: alice", "followed by an id"),
        ("from:a:b", "not an id"),
        ("in:../x", "not an id"),
        ("has:link", "must be has:file"),
        ("before:yesterday", "must be a date"),
        ("before:2026-02-30", "must be a date"),
        ("after:9999-01-01", "must be a date"),
        ("after:2026-01-02 before:2026-01-02", "must be earlier"),
        ("in:a in:b", "given twice"),
    ],
)
def test_invalid_query_is_refused_with_the_reason(query: str, reason: str) -> None:
    """The message names the parameter, the part and the limit."""
    with pytest.raises(BadRequest, match=reason) as caught:
        parse_query(query, "alice")
    assert caught.value.message.startswith("q: ")


@given(st.text(max_size=120))
def test_any_text_is_a_query_or_a_bad_request(text: str) -> None:
    """No input raises any other error."""
    with contextlib.suppress(BadRequest):
        parse_query(text, "alice")


@given(
    st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1), max_size=9)
)
def test_text_is_found_by_its_words_and_as_a_phrase(words: list[str]) -> None:
    text = normalize(" ".join(words))
    for word in text.split():
        if tokenize(word):
            assert is_found(f'"{word}"', text)
            assert is_found(word, text)
    if tokenize(text) and len(text) < 400 and len(tokenize(text)) <= 64:
        assert is_found(f'"{text}"', text)


@given(st.text(max_size=400), st.text(min_size=1, max_size=3))
def test_snippet_is_a_part_of_the_text(text: str, query: str) -> None:
    """The joined segments are text of the message; only ellipses are added."""
    text = normalize(text)
    with contextlib.suppress(BadRequest):
        spans = find_spans(parse_query(query, "alice").terms, text)
        if spans is None:
            return
        segments = make_snippet(text, spans)
        shown = "".join(each.text for each in segments)
        assert shown.removeprefix("…").removesuffix("…") in text or shown in text
        assert len(shown) <= SNIPPET_CHARS + 2
        assert all(each.text for each in segments)
        assert not spans or any(each.hit for each in segments)


def test_snippet_marks_the_hits() -> None:
    """Hits are separate segments, also in scripts without spaces."""
    text = "今日は東京都に行く。"
    spans = find_spans(parse_query("東京", "alice").terms, text)

    segments = make_snippet(text, spans or [])

    assert [(each.text, each.hit) for each in segments] == [
        ("今日は", False),
        ("東京", True),
        ("都に行く。", False),
    ]


def _list_all_spans(terms: tuple[Term, ...], text: str) -> list[tuple[int, int]] | None:
    """Return all matches, found by comparing each term with each position of the text."""
    tokens, spans = tokenize(text), []
    for term in terms:
        size, found = len(term.tokens), []
        for number in range(len(tokens) - size + 1):
            names = [token.text for token in tokens[number : number + size]]
            is_last = names[-1] == term.tokens[-1] or (
                term.is_prefix and names[-1].startswith(term.tokens[-1])
            )
            if names[:-1] == list(term.tokens[:-1]) and is_last:
                found.append((tokens[number].start, tokens[number + size - 1].end))
        if not found:
            return None
        spans += found
    return sorted(spans)


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "東", "京", "é", "-"]), max_size=60),
    st.lists(st.sampled_from(["a", "b", '"a b a"', '"b a"', "ab", "東京", "京", "é"]), max_size=5),
)
def test_spans_are_those_of_a_comparison_at_each_position(
    pieces: list[str], query: list[str]
) -> None:
    """Overlapping matches, prefixes and pairs are found near the first match, and no others."""
    text = normalize(" ".join(pieces))
    with contextlib.suppress(BadRequest):
        terms = parse_query(" ".join(query), "alice").terms
        expected, spans = _list_all_spans(terms, text), find_spans(terms, text)

        assert (spans is None) == (expected is None)
        if expected and spans:
            assert spans[0][0] == expected[0][0]
            near = [span for span in expected if span[0] < expected[0][0] + SNIPPET_CHARS]
            assert all(any(a <= start and end <= b for a, b in spans) for start, end in near)
            assert all(any(span[0] == start for span in expected) for start, _ in spans)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.script)
def test_text_in_any_script_is_found_as_people_type_it(case: Case) -> None:
    """Letters that people type for each other, other widths and forms of characters, and emoji."""
    assert [query for query in case.found if not is_found(query, case.text)] == []
    assert [query for query in case.missed if is_found(query, case.text)] == []
    for word in case.text.split():
        if tokenize(normalize(word)):
            assert is_found(word.replace('"', ""), case.text), word
