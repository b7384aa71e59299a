"""Cursors: opaque, bound to a list and a caller, and good for nothing else."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from chatserver.auth.page_cursors import Cursors
from chatserver.errors import BadRequest

CURSORS = Cursors(SecretStr("0123456789abcdef0123456789abcdef"))


@given(st.text(max_size=64), st.text(max_size=100))
def test_cursor_opened_for_its_own_list_gives_the_place(what: str, place: str) -> None:
    """A sealed position is returned unchanged, whatever its type."""
    assert CURSORS.open(what, CURSORS.seal(what, place), str) == place


def test_cursor_that_is_not_given_is_the_beginning() -> None:
    """The first page needs none."""
    assert CURSORS.open("chats of alice", None, str) is None


@given(st.text(max_size=64), st.text(max_size=64))
def test_cursor_of_another_list_is_refused(mine: str, yours: str) -> None:
    """Neither another list's nor another caller's cursor opens anything."""
    cursor = CURSORS.seal(mine, "place")

    if mine != yours:
        with pytest.raises(BadRequest, match="cursor"):
            CURSORS.open(yours, cursor, str)


@given(st.text(max_size=60))
def test_cursor_that_is_made_up_is_refused(text: str) -> None:
    """A forged cursor is a bad request, whatever characters it contains."""
    with pytest.raises(BadRequest, match="cursor"):
        CURSORS.open("chats", text, str)


def test_cursor_with_one_bit_changed_is_refused() -> None:
    """Each byte is under the seal."""
    sealed = bytearray(base64.urlsafe_b64decode(CURSORS.seal("chats", "place") + "=="))
    for at in range(len(sealed)):
        forged = bytes([*sealed[:at], sealed[at] ^ 1, *sealed[at + 1 :]])
        with pytest.raises(BadRequest):
            CURSORS.open("chats", base64.urlsafe_b64encode(forged).decode().rstrip("="), str)


def test_cursor_of_another_secret_is_refused() -> None:
    """Servers that share no secret share no cursors."""
    other = Cursors(SecretStr("f" * 32))

    with pytest.raises(BadRequest):
        CURSORS.open("chats", other.seal("chats", "place"), str)


def test_short_list_is_cut_into_pages_that_together_are_it() -> None:
    """Each item appears once and in order, for any page size; the last page has no `next`."""
    found = [(3, "c"), (1, "b"), (1, "a"), (2, "a"), (9, "z")]
    for limit in range(1, len(found) + 2):
        shown: list[tuple[int, str]] = []
        cursor: str | None = None
        while True:
            page, cursor = CURSORS.cut("list of zoe", found, lambda one: one, cursor, limit)
            assert 0 < len(page) <= limit
            shown += page
            if cursor is None:
                break
        assert shown == sorted(found)


def test_short_list_that_changes_between_pages_repeats_nothing() -> None:
    """The item that a page ended with may be gone by the next one."""
    first, cursor = CURSORS.cut("l", [(1, "a"), (2, "b"), (3, "c")], lambda one: one, None, 2)
    rest, following = CURSORS.cut("l", [(1, "a"), (3, "c"), (0, "n")], lambda one: one, cursor, 2)

    assert (first, rest, following) == ([(1, "a"), (2, "b")], [(3, "c")], None)
