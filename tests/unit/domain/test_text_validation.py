"""Limits and allowed characters of bodies, names and emoji."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.text_validation import (
    BODY_BYTES_MAX,
    BODY_CHARS_MAX,
    COMBINING_RUN_MAX,
    NAME_CHARS_MAX,
    BodyBounds,
    clean_body,
    is_blank,
    parse_body,
    parse_caption,
    parse_name,
    parse_note,
)
from chatserver.errors import BadRequest, ClientError, TooLarge
from tests.support.written_texts import BLANK_TEXTS, NAMES, TEXTS

ACUTE = "\u0301"
DECOMPOSED_BY_NFC = "\u0958"  # NFC replaces it with two characters


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=300))
def test_parse_body_returns_plain_text_unchanged(text: str) -> None:
    assert parse_body(text) == text


@given(st.text(max_size=200))
def test_parse_body_accepts_only_valid_text(text: str) -> None:
    """Any accepted body is normalized, bounded, and parses to itself."""
    try:
        body = parse_body(text)
    except ClientError:
        return

    assert unicodedata.is_normalized("NFC", body)
    assert parse_body(body) == body


def test_parse_body_limits_of_the_settings_are_exact() -> None:
    """An operator may set lower limits; the limit in bytes also applies to ASCII."""
    bounds = BodyBounds(chars_max=10, bytes_max=12)

    assert parse_body("x" * 10, bounds)
    assert parse_body("🙂🙂🙂", bounds)
    with pytest.raises(TooLarge, match="body: must be at most 10 characters"):
        parse_body("x" * 11, bounds)
    with pytest.raises(TooLarge, match="body: must be at most 12 bytes of UTF-8"):
        parse_body("🙂🙂🙂x", bounds)
    with pytest.raises(TooLarge, match="body: must be at most 4 bytes of UTF-8"):
        parse_body("x" * 5, BodyBounds(bytes_max=4))


@pytest.mark.parametrize("char", ["a", "ä", "€"])
def test_parse_body_limit_in_characters_is_exact(char: str) -> None:
    """4,000 characters are accepted, 4,001 are not."""
    assert len(parse_body(char * BODY_CHARS_MAX)) == BODY_CHARS_MAX
    with pytest.raises(TooLarge, match=f"body: must be at most {BODY_CHARS_MAX} characters"):
        parse_body(char * (BODY_CHARS_MAX + 1))


def test_parse_body_default_limit_in_bytes_never_applies_first() -> None:
    """4,000 characters of UTF-8 have at most 16,000 bytes, below the limit of 16,384."""
    longest = "🙂" * BODY_CHARS_MAX

    assert len(parse_body(longest).encode()) == 4 * BODY_CHARS_MAX <= BODY_BYTES_MAX


def test_parse_body_applies_limits_after_normalization() -> None:
    """The limits are on the text that is stored and sent."""
    fits = DECOMPOSED_BY_NFC * (BODY_CHARS_MAX // 2)

    assert len(parse_body(fits)) == BODY_CHARS_MAX
    with pytest.raises(TooLarge):
        parse_body(fits + DECOMPOSED_BY_NFC)


def test_parse_body_refuses_empty_text() -> None:
    """A message has text."""
    with pytest.raises(BadRequest, match="body: must not be empty"):
        parse_body("")


@pytest.mark.parametrize("template", ["a{}b", "ä{}ö", "{}b"])
def test_parse_body_refuses_control_characters_except_tab_and_line_breaks(template: str) -> None:
    """A message cannot control a terminal, a log or a screen."""
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        text = template.format(chr(code))
        if chr(code) in "\t\n\r":
            assert parse_body(text) == text.replace("\r", "\n"), code
            continue
        with pytest.raises(BadRequest, match="body: must not contain control characters"):
            parse_body(text)
            pytest.fail(f"{code:#x} is accepted")


def test_parse_body_normalizes_to_nfc() -> None:
    """Equal texts are equal strings on all devices, so search and comparison work."""
    assert parse_body("e" + ACUTE) == "é"


def test_parse_body_limits_runs_of_combining_marks() -> None:
    """Eight marks on a letter are accepted, nine are not; the next letter starts a new run."""
    marks = ACUTE * COMBINING_RUN_MAX
    assert parse_body(f"x{marks}x{marks}")

    with pytest.raises(BadRequest, match="body: must have at most 8 combining marks in a row"):
        parse_body(f"xq{marks}{ACUTE}")


def test_parse_body_keeps_a_lone_surrogate() -> None:
    """JSON decoders refuse it earlier; here it only must not raise an error."""
    assert parse_body("\ud800") == "\ud800"


@given(st.text(max_size=100))
def test_parse_name_accepts_only_valid_text(text: str) -> None:
    """Any accepted name is stripped, bounded, on one line, and parses to itself."""
    try:
        name = parse_name(text)
    except ClientError:
        return

    assert 0 < len(name) <= NAME_CHARS_MAX
    assert len(name.splitlines()) == 1
    assert parse_name(name) == name


def test_parse_name_limit_is_exact_after_stripping() -> None:
    """80 characters are accepted, with any whitespace around them."""
    assert parse_name("  " + "ä" * NAME_CHARS_MAX + "\n") == "ä" * NAME_CHARS_MAX
    with pytest.raises(TooLarge, match="name: must be at most 80 characters"):
        parse_name("ä" * (NAME_CHARS_MAX + 1))


def test_parse_name_applies_the_limit_after_normalization() -> None:
    """The limit is on the displayed text."""
    with pytest.raises(TooLarge, match="name: must be at most 80 characters"):
        parse_name(DECOMPOSED_BY_NFC * 41)


@pytest.mark.parametrize("text", BLANK_TEXTS)
def test_blank_text_is_refused_like_an_empty_one(text: str) -> None:
    """A message or name of invisible characters looks like a mistake, but would be unread."""
    assert is_blank(text)
    with pytest.raises(BadRequest, match="body: must not be empty"):
        parse_body(text)
    with pytest.raises(BadRequest, match="name: must not"):
        parse_name(text)
    assert parse_caption(text) == ""
    if not any(char in text for char in "\x1c\x85"):
        assert parse_note(text, "about") == ""


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_of_any_script_is_accepted_unchanged(text: str) -> None:
    """Invisible characters between others are part of the text."""
    normalized = unicodedata.normalize("NFC", text)

    assert not is_blank(text)
    assert parse_body(text) == parse_caption(text) == clean_body(text) == normalized
    assert parse_note(text, "about") == normalized


@pytest.mark.parametrize("text", NAMES.values(), ids=NAMES)
def test_name_of_any_script_is_accepted_unchanged(text: str) -> None:
    """Persian and Indic names need joiners, and emoji need variation selectors and tags."""
    assert parse_name(text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("char", ["\u200b", "\u2060", "\u00ad", "\ufeff", "\u3164", "\u2800"])
def test_parse_name_removes_invisible_characters(char: str) -> None:
    """Two names that look the same are the same."""
    assert parse_name(f"{char} Ali{char}ce{char} ") == "Alice"


@pytest.mark.parametrize("text", ["", "   ", "\t\n"])
def test_parse_name_refuses_blank_text_with_the_field(text: str) -> None:
    """The error names the field."""
    with pytest.raises(BadRequest, match="title: must not be empty"):
        parse_name(text, "title")


@pytest.mark.parametrize(
    "char",
    [
        "\n",
        "\r\n",
        "\t",
        "\u2028",
        "\u2029",
        "\u061c",
        "\u200e",
        "\u200f",
        "\u202a",
        "\u202e",
        "\u2066",
    ],
)
def test_parse_name_refuses_line_breaks_and_direction_marks(char: str) -> None:
    """A name cannot break a line or change the direction of the text next to it."""
    with pytest.raises(BadRequest, match="name: must not contain line breaks or direction marks"):
        parse_name(f"a{char}b")


@pytest.mark.parametrize("char", ["\r", "\x00", "\x1b", "\x7f", "\x85", "\x0b", "\x0c"])
def test_parse_name_refuses_control_characters(char: str) -> None:
    """A name cannot control a terminal."""
    with pytest.raises(BadRequest, match="name: must not contain"):
        parse_name(f"a{char}b")


@given(st.text(), st.integers(1, 60), st.integers(4, 120))
def test_clean_body_of_any_text_is_a_valid_body(text: str, chars: int, size: int) -> None:
    """Text that no user wrote is made valid; valid text is not changed."""
    bounds = BodyBounds(chars, size)
    cleaned = clean_body(text, bounds)

    assert not cleaned or parse_body(cleaned, bounds) == cleaned


def test_clean_body_removes_control_characters_and_excess_marks() -> None:
    """A lone surrogate is replaced."""
    assert clean_body("a\r\nb\x00c\x1b[1m") == "a\nbc[1m"
    assert clean_body("e" + "\u0301" * 50) == "é" + "\u0301" * 8
    assert clean_body("\ud800x") == "?x"


@pytest.mark.parametrize("parse", [parse_body, lambda text: parse_note(text, "reason"), clean_body])
@pytest.mark.parametrize("text", ["one\r\ntwo", "one\rtwo", "one\ntwo"])
def test_line_breaks_of_every_system_become_newlines(
    parse: Callable[[str], str], text: str
) -> None:
    """CRLF and CR line breaks are normalized to LF."""
    assert parse(text) == "one\ntwo"
    assert parse(f"é{text}\r\n\r\nthree") == "éone\ntwo\n\nthree"


def test_line_break_counts_as_one_character() -> None:
    """Limits apply to the text that is stored."""
    bounds = BodyBounds(chars_max=3, bytes_max=3)

    assert parse_body("a\r\nb", bounds) == "a\nb"
    with pytest.raises(TooLarge, match="body: must be at most 3 characters"):
        parse_body("a\r\nbc", bounds)
