"""Pages: full, complete and bounded; valid and invalid tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import BadRequest
from chatserver.protocol.frames import PAGE_MAX
from chatserver.warm.dynamo import paging
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, check_limit, read_page
from chatserver.warm.schema.tables import MESSAGES, SENDER_INDEX, STATUS_INDEX

SENT = Span(MESSAGES, "alice", SENDER_INDEX, between=(10, 20))
ACTIVE = Span(MESSAGES, "c", STATUS_INDEX, prefix="active#")


def test_token_of_a_row_is_the_start_of_the_page_after_it() -> None:
    """A token has the keys of the index and the table, and decodes to itself."""
    row = {"sender_id": {"S": "alice"}, "ts": {"N": "15"}, "chatid": {"S": "c"}}

    token = SENT.build_token({**row, "expires_at": {"N": "1"}})

    assert token == {"sender_id": "alice", "ts": 15, "chatid": "c"}
    assert SENT.build_start_key(token) == row


@pytest.mark.parametrize(
    "token",
    [
        {},
        {"sender_id": "alice", "ts": 15},
        {"sender_id": "alice", "ts": 15, "chatid": "c", "more": 1},
        {"sender_id": "alice", "ts": "15", "chatid": "c"},
        {"sender_id": "alice", "ts": True, "chatid": "c"},
        {"sender_id": 1, "ts": 15, "chatid": "c"},
        {"sender_id": "mallory", "ts": 15, "chatid": "c"},
        {"sender_id": "alice", "ts": 9, "chatid": "c"},
        {"sender_id": "alice", "ts": 21, "chatid": "c"},
    ],
)
def test_token_of_another_query_is_refused(token: dict[str, str | int]) -> None:
    """A token is valid only in its own partition and range."""
    with pytest.raises(BadRequest, match="page token"):
        SENT.build_start_key(token)


def test_token_outside_the_prefix_is_refused() -> None:
    """A page of active messages does not continue with other messages."""
    token: dict[str, str | int] = {"chatid": "c", "status_ts": "deleted#0001", "ts": 1}

    with pytest.raises(BadRequest, match="page token"):
        ACTIVE.build_start_key(token)


@pytest.mark.parametrize("limit", [1, PAGE_MAX])
def test_limit_at_its_bound_is_accepted(limit: int) -> None:
    """The minimum and the maximum are valid."""
    check_limit(limit)


@pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1])
def test_limit_out_of_its_bound_is_refused(limit: int) -> None:
    """Every page is bounded."""
    with pytest.raises(BadRequest, match="limit"):
        check_limit(limit)


# pages


class Rows:
    """A partition of rows with the Query behavior of AWS; `filtered` rows fail its filter.

    A Query scans at most `Limit` rows, and at most `cut` rows to simulate the limit of 1 MB.
    """

    def __init__(self, count: int, filtered: frozenset[int], cut: int) -> None:
        self._rows = [_row(ts) for ts in range(count)]
        self._filtered = filtered
        self._cut = cut
        self.scanned: list[int] = []

    @contextlib.asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        yield

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        assert operation == "query"
        start = request.get("ExclusiveStartKey")
        first = 0 if start is None else int(start["ts"]["N"]) + 1
        rows = self._rows[first : first + min(request["Limit"], self._cut)]
        self.scanned += [int(row["ts"]["N"]) for row in rows]
        response: dict[str, Any] = {
            "Items": [row for row in rows if int(row["ts"]["N"]) not in self._filtered],
            "ScannedCount": len(rows),
        }
        if rows and len(rows) == min(request["Limit"], self._cut):
            response["LastEvaluatedKey"] = rows[-1]
        return response


def _row(ts: int) -> Item:
    return {"chatid": {"S": "c"}, "ts": {"N": str(ts)}}


CHAT = Span(MESSAGES, "c")


async def read_all(
    rows: Rows, limit: int, excluded: frozenset[int], omitted: frozenset[int]
) -> list[list[int]]:
    """Read all pages."""

    async def choose(rows_read: list[Item]) -> list[Item]:
        return [row for row in rows_read if int(row["ts"]["N"]) not in excluded]

    async def load(rows_read: list[Item]) -> list[int | None]:
        return [None if (ts := int(row["ts"]["N"])) in omitted else ts for row in rows_read]

    client, pages = cast(Any, rows), []
    start: Token | None = None
    while True:
        page = await read_page(client, CHAT, {}, load, limit=limit, start=start, choose=choose)
        pages.append(page.items)
        start = page.next
        if start is None:
            return pages


seqs = st.frozensets(st.integers(0, 60), max_size=50)


@given(st.integers(0, 60), seqs, seqs, seqs, st.integers(1, 9), st.integers(1, 70))
async def test_pages_are_full_and_contain_each_row_once(
    count: int,
    filtered: frozenset[int],
    excluded: frozenset[int],
    omitted: frozenset[int],
    limit: int,
    cut: int,
) -> None:
    """This holds for any cut by DynamoDB and any filtered rows."""
    rows = Rows(count, filtered, cut)

    pages = await read_all(rows, limit, excluded, omitted)

    wanted = [ts for ts in range(count) if ts not in filtered | excluded | omitted]
    assert [ts for page in pages for ts in page] == wanted
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert len(pages) == max(1, -(-len(wanted) // limit))


@given(seqs, seqs, st.integers(1, 9), st.integers(1, 20), st.integers(1, 20))
async def test_page_at_its_work_limit_is_short_and_the_next_one_continues(
    filtered: frozenset[int],
    omitted: frozenset[int],
    limit: int,
    scanned_max: int,
    loaded_max: int,
) -> None:
    """The work limit shortens pages, but no row is skipped."""
    rows = Rows(61, filtered, 70)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "SCANNED_MAX", scanned_max)
        patch.setattr(paging, "LOADED_MAX", loaded_max)
        patch.setattr(paging, "CHUNK_MIN", 1)

        pages = await read_all(rows, limit, frozenset(), omitted)

    wanted = [ts for ts in range(61) if ts not in filtered | omitted]
    assert [ts for page in pages for ts in page] == wanted
    assert all(len(page) <= limit for page in pages)


async def test_page_scans_at_most_the_scan_limit() -> None:
    """With 100,000 rows that are all filtered, a page scans only a part of them."""
    rows = Rows(100_000, frozenset(range(100_000)), 100_000)

    page = await read_page(cast(Any, rows), CHAT, {}, _none, limit=50, start=None)

    assert page == QueryPage([], {"chatid": "c", "ts": paging.SCANNED_MAX - 1})
    assert len(rows.scanned) == paging.SCANNED_MAX


async def test_page_loads_at_most_the_load_limit() -> None:
    """Loading costs more than scanning, so its limit is lower."""
    rows, loaded = Rows(100_000, frozenset(), 100_000), []

    async def load(rows_read: list[Item]) -> list[int | None]:
        loaded.extend(rows_read)
        return [None] * len(rows_read)

    page = await read_page(cast(Any, rows), CHAT, {}, load, limit=50, start=None)

    assert page.items == []
    assert page.next == CHAT.build_token(loaded[-1])
    assert paging.LOADED_MAX <= len(loaded) < paging.LOADED_MAX + paging.CHUNK_MIN


async def _none(rows_read: list[Item]) -> list[int | None]:
    return [None] * len(rows_read)
