"""Text: bounds and characters of bodies and names."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.text import (
    BODY_BYTES_MAX,
    BODY_CHARS_MAX,
    COMBINING_RUN_MAX,
    EMOJI_CHARS_MAX,
    NAME_CHARS_MAX,
    BodyBounds,
    clean_body,
    parse_body,
    parse_emoji,
    parse_name,
    parse_note,
)
from chatserver.errors import BadRequest, ClientError, TooLarge

ACUTE = "\u0301"
COMES_APART = "\u0958"  # NFC makes two characters of it


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=300))
def test_parse_body_plain_text_is_returned_as_it_is(text: str) -> None:
    """Ordinary text is not changed."""
    assert parse_body(text) == text


@given(st.text(max_size=200))
def test_parse_body_any_text_is_refused_or_within_every_rule(text: str) -> None:
    """Any accepted body is normalized, bounded, and parses to itself."""
    try:
        body = parse_body(text)
    except ClientError:
        return

    assert unicodedata.is_normalized("NFC", body)
    assert parse_body(body) == body


def test_parse_body_bounds_of_the_settings_are_exact() -> None:
    """An operator may want shorter messages; bytes count for plain text, too."""
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
def test_parse_body_bound_in_characters_is_exact(char: str) -> None:
    """4,000 characters are taken, one more is not."""
    assert len(parse_body(char * BODY_CHARS_MAX)) == BODY_CHARS_MAX
    with pytest.raises(TooLarge, match=f"body: must be at most {BODY_CHARS_MAX} characters"):
        parse_body(char * (BODY_CHARS_MAX + 1))


def test_parse_body_bound_in_bytes_holds_for_the_longest_characters() -> None:
    """No 4,000 characters of UTF-8 reach 16,384 bytes, so the bound in characters comes first."""
    longest = "🙂" * BODY_CHARS_MAX

    assert len(parse_body(longest).encode()) == 4 * BODY_CHARS_MAX <= BODY_BYTES_MAX


def test_parse_body_that_grows_by_normalising_is_measured_afterwards() -> None:
    """The bound is on what is stored and sent on."""
    fits = COMES_APART * (BODY_CHARS_MAX // 2)

    assert len(parse_body(fits)) == BODY_CHARS_MAX
    with pytest.raises(TooLarge):
        parse_body(fits + COMES_APART)


def test_parse_body_empty_is_refused() -> None:
    """A message has text."""
    with pytest.raises(BadRequest, match="body: must not be empty"):
        parse_body("")


@pytest.mark.parametrize("around", ["a{}b", "ä{}ö", "{}"])
def test_parse_body_control_characters_are_refused_but_tab_and_line_breaks(around: str) -> None:
    """No terminal, log or screen is steered by a message."""
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        text = around.format(chr(code))
        if chr(code) in "\t\n\r":
            assert parse_body(text) == text.replace("\r", "\n"), code
            continue
        with pytest.raises(BadRequest, match="body: must not contain control characters"):
            parse_body(text)
            pytest.fail(f"{code:#x} is taken")


def test_parse_body_is_normalised_to_nfc() -> None:
    """One way of writing a text, so that two devices search and compare the same."""
    assert parse_body("e" + ACUTE) == "é"


def test_parse_body_run_of_combining_marks_has_a_bound() -> None:
    """Eight marks on a letter are taken, nine are not; the next letter begins again."""
    marks = ACUTE * COMBINING_RUN_MAX
    assert parse_body(f"x{marks}x{marks}")

    with pytest.raises(BadRequest, match="body: at most 8 combining marks in a row"):
        parse_body(f"xq{marks}{ACUTE}")


def test_parse_body_lone_surrogate_does_not_crash() -> None:
    """It cannot come by the wire; if it comes another way it is no reason to fall over."""
    assert parse_body("\ud800") == "\ud800"


# names


@given(st.text(max_size=100))
def test_parse_name_any_text_is_refused_or_within_every_rule(text: str) -> None:
    """Any accepted name is stripped, bounded, on one line, and parses to itself."""
    try:
        name = parse_name(text)
    except ClientError:
        return

    assert 0 < len(name) <= NAME_CHARS_MAX
    assert len(name.splitlines()) == 1
    assert parse_name(name) == name


def test_parse_name_bound_is_exact_and_counts_after_stripping() -> None:
    """80 characters are taken, whatever blanks stood around them."""
    assert parse_name("  " + "ä" * NAME_CHARS_MAX + "\n") == "ä" * NAME_CHARS_MAX
    with pytest.raises(TooLarge, match="name: must be at most 80 characters"):
        parse_name("ä" * (NAME_CHARS_MAX + 1))


def test_parse_name_that_grows_by_normalising_is_measured_afterwards() -> None:
    """The bound is on what is shown."""
    with pytest.raises(TooLarge, match="name: must be at most 80 characters"):
        parse_name(COMES_APART * 41)


@pytest.mark.parametrize("text", ["", "   ", "\t\n"])
def test_parse_name_blank_is_refused_by_the_field_given(text: str) -> None:
    """An invisible name is not a name; the error names the field."""
    with pytest.raises(BadRequest, match="title: must not be empty"):
        parse_name(text, "title")


@pytest.mark.parametrize(
    "char",
    ["\n", "\t", "\u2028", "\u2029", "\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066"],
)
def test_parse_name_breaks_and_direction_marks_are_refused(char: str) -> None:
    """A name cannot break a line or change the direction of the text next to it."""
    with pytest.raises(BadRequest, match="name: must not contain line breaks or direction marks"):
        parse_name(f"a{char}b")


@pytest.mark.parametrize("char", ["\r", "\x00", "\x1b", "\x7f", "\x85", "\x0b", "\x0c"])
def test_parse_name_control_characters_are_refused(char: str) -> None:
    """A name cannot steer a terminal."""
    with pytest.raises(BadRequest, match="name: must not contain"):
        parse_name(f"a{char}b")


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
        "❤",
        "1️⃣",
        "©",
        "\U0001fae8",
    ],
)
def test_parse_emoji_accepts_one_emoji(text: str) -> None:
    """Families, skin tones and flags included; an empty text removes the reaction."""
    assert parse_emoji(text) == text


@pytest.mark.parametrize(
    "text",
    [" ", "a b", "ok", "+1", ":party:", "1", "👍👍", "👍 ", "🇩", "👨\u200d", "\u200d👍", "🏽",
     "\n", "\x00", "\u202e", "\u200b", "\ud800", "\ufeff"],
)  # fmt: skip
def test_parse_emoji_refuses_everything_else(text: str) -> None:
    """Text, several emoji, and parts of one are refused by name."""
    with pytest.raises(BadRequest, match="emoji: must be one emoji"):
        parse_emoji(text)


def test_parse_emoji_bound_is_exact() -> None:
    """A longer text is refused before it is parsed."""
    with pytest.raises(BadRequest):
        parse_emoji("👍" * EMOJI_CHARS_MAX)
    with pytest.raises(TooLarge, match=f"emoji: must be at most {EMOJI_CHARS_MAX} code points"):
        parse_emoji("👍" * (EMOJI_CHARS_MAX + 1))


@given(st.text(), st.integers(1, 60), st.integers(4, 120))
def test_clean_body_of_anything_is_a_body(text: str, chars: int, size: int) -> None:
    """Text that no user wrote is made valid; valid text is not changed."""
    bounds = BodyBounds(chars, size)
    cleaned = clean_body(text, bounds)

    assert not cleaned or parse_body(cleaned, bounds) == cleaned


def test_clean_body_takes_out_what_a_message_may_not_have() -> None:
    """Control characters, and marks piled on one letter."""
    assert clean_body("a\r\nb\x00c\x1b[1m") == "a\nbc[1m"
    assert clean_body("e" + "\u0301" * 50) == "é" + "\u0301" * 8
    assert clean_body("\ud800x") == "?x"


@pytest.mark.parametrize("parse", [parse_body, lambda text: parse_note(text, "reason"), clean_body])
@pytest.mark.parametrize("given_text", ["one\r\ntwo", "one\rtwo", "one\ntwo"])
def test_parse_line_breaks_of_every_system_become_newlines(
    parse: Callable[[str], str], given_text: str
) -> None:
    """CRLF and CR line breaks are normalized to LF."""
    assert parse(given_text) == "one\ntwo"
    assert parse(f"é{given_text}\r\n\r\nthree") == "éone\ntwo\n\nthree"


def test_parse_line_breaks_count_as_one_character() -> None:
    """Limits are those of the text that is stored."""
    bounds = BodyBounds(chars_max=3, bytes_max=3)

    assert parse_body("a\r\nb", bounds) == "a\nb"
    with pytest.raises(TooLarge, match="body: must be at most 3 characters"):
        parse_body("a\r\nbc", bounds)


def test_parse_name_still_refuses_line_breaks() -> None:
    """A name is one line."""
    for text in ("a\r\nb", "a\rb", "a\nb"):
        with pytest.raises(BadRequest, match="name: must not contain"):
            parse_name(text)
