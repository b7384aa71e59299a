"""The line being typed: whatever keys come, a sane line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.terminal.line_editor import CHARS_MAX, Key, LineEditor


def typed(keys: str) -> tuple[str, int]:
    editor = LineEditor()
    editor.feed(keys)
    return editor.text, editor.cursor


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        ("abc", "abc", 3),
        ("héllo €", "héllo €", 7),
        ("abc\x7f", "ab", 2),
        ("\x7f", "", 0),
        ("abc\x1b[D\x1b[DX", "aXbc", 2),
        ("abc\x1b[HX", "Xabc", 1),
        ("abc\x01\x1b[3~", "bc", 0),
        ("abc\x01\x05X", "abcX", 4),
        ("one two\x17", "one ", 4),
        ("one two \x17", "one ", 4),
        ("one two\x15", "", 0),
        ("one two\x1b[D\x0b", "one tw", 6),
        ("\x1b[D\x1b[C\x1b[C", "", 0),
        ("a\x1b[99;5Zb", "ab", 2),
        ("a\x1bb", "ab", 2),
        ("a\x00\x07b", "ab", 2),
    ],
)
def test_keys_edit_the_line(keys: str, text: str, cursor: int) -> None:
    """The usual keys do the usual things; unknown ones do nothing."""
    assert typed(keys) == (text, cursor)


def test_key_that_comes_in_pieces_is_one_key() -> None:
    """A slow line splits an arrow key; nothing of it is typed."""
    editor = LineEditor()

    for piece in ("ab", "\x1b", "[", "D", "X"):
        editor.feed(piece)

    assert editor.text == "aXb"


def test_enter_gives_the_line_and_begins_a_new_one() -> None:
    """Several lines at once, as from a paste, are several messages."""
    editor = LineEditor()

    assert editor.feed("one\rtwo\nthree") == ["one", "two"]
    assert editor.text == "three"


def test_enter_on_nothing_gives_nothing() -> None:
    """An empty message cannot be sent by mistake."""
    assert LineEditor().feed("\r  \r") == []


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("\x03", Key.QUIT),
        ("\x04", Key.QUIT),
        ("\x1b[5~", Key.PAGE_UP),
        ("\x1b[6~", Key.PAGE_DOWN),
    ],
)
def test_command_key_is_reported(keys: str, key: Key) -> None:
    """Keys that do not edit are for the screen."""
    assert LineEditor().feed(keys) == [key]


def test_line_has_a_bound() -> None:
    """No more can be typed than may be sent."""
    assert len(typed("x" * (CHARS_MAX + 10))[0]) == CHARS_MAX


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b[D\x7f\x17\x15\r")))
def test_any_keys_leave_a_printable_line_and_a_cursor_in_it(keys: str) -> None:
    """No input breaks the editor or puts a control character into a message."""
    text, cursor = typed(keys)

    assert 0 <= cursor <= len(text)
    assert text.replace("\t", "").isprintable()
