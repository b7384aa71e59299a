"""Page cursors: opaque, and bound to one list and one caller."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from chatserver.api.paging import Page, PageQuery
from chatserver.auth.page_cursors import Cursors
from chatserver.errors import BadRequest

CURSORS = Cursors(SecretStr("0123456789abcdef0123456789abcdef"))


@given(st.text(max_size=64), st.text(max_size=100))
def test_cursor_opened_for_its_own_list_returns_the_position(list_name: str, position: str) -> None:
    """A signed position is returned unchanged."""
    assert CURSORS.open(list_name, CURSORS.sign(list_name, position), str) == position


def test_missing_cursor_is_the_beginning() -> None:
    """The first page needs no cursor."""
    assert CURSORS.open("chats of alice", None, str) is None


@given(st.text(max_size=64), st.text(max_size=64))
def test_cursor_of_another_list_is_refused(list_name: str, other_list: str) -> None:
    """A cursor of another list or another caller is a bad request."""
    cursor = CURSORS.sign(list_name, "position")

    if list_name != other_list:
        with pytest.raises(BadRequest, match="cursor"):
            CURSORS.open(other_list, cursor, str)


@given(st.text(max_size=60))
def test_forged_cursor_is_refused(text: str) -> None:
    """A forged cursor with any characters is a bad request."""
    with pytest.raises(BadRequest, match="cursor"):
        CURSORS.open("chats", text, str)


def test_cursor_with_one_bit_changed_is_refused() -> None:
    """The signature covers each byte."""
    valid = bytearray(base64.urlsafe_b64decode(CURSORS.sign("chats", "position") + "=="))
    for at in range(len(valid)):
        forged = bytes([*valid[:at], valid[at] ^ 1, *valid[at + 1 :]])
        with pytest.raises(BadRequest):
            CURSORS.open("chats", base64.urlsafe_b64encode(forged).decode().rstrip("="), str)


def test_cursor_of_another_secret_is_refused() -> None:
    """Servers with different secrets reject each other's cursors."""
    other = Cursors(SecretStr("f" * 32))

    with pytest.raises(BadRequest):
        CURSORS.open("chats", other.sign("chats", "position"), str)


def slice_page(
    items: list[tuple[int, str]], cursor: str | None, limit: int
) -> Page[tuple[int, str]]:
    query = PageQuery(cursors=CURSORS, scope="list of zoe", limit=limit, cursor=cursor)
    return query.slice(items, lambda item: item, lambda item: item)


def test_short_list_is_split_into_pages_without_gap_or_repeat() -> None:
    """Each item appears once and in order, for any page size; the last page has no `next`."""
    items = [(3, "c"), (1, "b"), (1, "a"), (2, "a"), (9, "z")]
    for limit in range(1, len(items) + 2):
        shown: list[tuple[int, str]] = []
        page = slice_page(items, None, limit)
        while True:
            assert 0 < len(page.items) <= limit
            shown += page.items
            if page.next is None:
                break
            page = slice_page(items, page.next, limit)
        assert shown == sorted(items)


def test_short_list_that_changes_between_pages_repeats_nothing() -> None:
    """The last item of a page may be deleted before the next page is read."""
    first = slice_page([(1, "a"), (2, "b"), (3, "c")], None, 2)
    rest = slice_page([(1, "a"), (3, "c"), (0, "n")], first.next, 2)

    assert first.items == [(1, "a"), (2, "b")]
    assert rest == Page([(3, "c")])


def test_cursor_is_valid_only_for_the_same_filters() -> None:
    """A narrowed list has cursors of its own."""
    query = PageQuery(cursors=CURSORS, scope="messages of zoe", limit=1, cursor=None)
    cursor = query.narrow("sent").build([], "position").next

    same = PageQuery(cursors=CURSORS, scope="messages of zoe", limit=1, cursor=cursor)

    assert same.narrow("sent").open(str) == "position"
    with pytest.raises(BadRequest, match="cursor"):
        same.narrow("received").open(str)
    with pytest.raises(BadRequest, match="cursor"):
        same.open(str)
