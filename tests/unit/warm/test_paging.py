"""Which tokens a page takes, and which it refuses."""

from __future__ import annotations

import pytest

from chatserver.errors import BadRequest
from chatserver.protocol.frames import PAGE_MAX
from chatserver.warm.paging import Span, check_limit
from chatserver.warm.tables import MESSAGES, SENDER_INDEX, STATUS_INDEX

SENT = Span(MESSAGES, "alice", SENDER_INDEX, between=(10, 20))
ACTIVE = Span(MESSAGES, "c", STATUS_INDEX, prefix="active#")


def test_token_of_a_row_is_the_start_of_the_page_after_it() -> None:
    """A token holds the index's key and the table's, and comes back as it went."""
    row = {"sender_id": {"S": "alice"}, "ts": {"N": "15"}, "chatid": {"S": "c"}}

    token = SENT.token_of({**row, "expires_at": {"N": "1"}})

    assert token == {"sender_id": "alice", "ts": 15, "chatid": "c"}
    assert SENT.start_of(token) == row


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
    """A token reads on in its own partition and range, and nowhere else."""
    with pytest.raises(BadRequest, match="page token"):
        SENT.start_of(token)


def test_token_outside_the_prefix_is_refused() -> None:
    """A page of active messages does not read on among others."""
    token: dict[str, str | int] = {"chatid": "c", "status_ts": "deleted#0001", "ts": 1}

    with pytest.raises(BadRequest, match="page token"):
        ACTIVE.start_of(token)


@pytest.mark.parametrize("limit", [1, PAGE_MAX])
def test_limit_at_its_bound_is_taken(limit: int) -> None:
    """The bounds themselves are allowed."""
    check_limit(limit)


@pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1])
def test_limit_out_of_its_bound_is_refused(limit: int) -> None:
    """Every page is bounded."""
    with pytest.raises(BadRequest, match="limit"):
        check_limit(limit)
