"""History by seq in the warm tier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chatserver.errors import BadRequest, CorruptData
from chatserver.protocol.frames import Message
from chatserver.warm.messages.messages import Messages
from tests.integration.warm.support import (
    START_TS,
    STEP_US,
    FixedClock,
    Tables,
    batch,
    expiring,
    message,
    seqs,
)

NOW_S = START_TS // 1_000_000 + 100_000
TOP = 300


def ts_of(seq: int) -> int:
    """Return the ts of a message of `long_chat`, which has bursts of 40 at intervals of an hour."""
    return START_TS + seq * STEP_US // 100 + (seq // 40) * 3600 * STEP_US


@pytest.fixture
def repository(tables: Tables) -> Messages:
    """The repository under test, with a fixed clock."""
    return Messages(tables.client, FixedClock(NOW_S))


@pytest.fixture
async def long_chat(repository: Messages) -> Messages:
    """A repository with a chat of 300 messages."""
    history = [message(seq, chat="long_chat", ts=ts_of(seq)) for seq in range(1, TOP + 1)]
    await repository.put_batch(batch(*history), timeout_s=20)
    return repository


async def test_head_is_the_newest_message(long_chat: Messages) -> None:
    """The head determines the next seq and ts after a loss of Redis."""
    head = await long_chat.find_head("long_chat")

    assert head == message(TOP, chat="long_chat", ts=ts_of(TOP))


async def test_head_of_an_empty_chat_is_none(repository: Messages) -> None:
    """A chat without messages starts at seq 1."""
    assert await repository.find_head("none") is None


async def test_head_includes_an_expired_message(repository: Messages, tables: Tables) -> None:
    """The seq of an expired message must not be assigned again."""
    await tables.put_rows(expiring(1, NOW_S + 1), expiring(2, NOW_S - 1))

    head = await repository.find_head("d-1")

    assert head is not None
    assert head.seq == 2


async def test_head_is_read_consistently(long_chat: Messages, tables: Tables) -> None:
    """Reads by seq must see every message stored before the call."""
    await long_chat.find_head("long_chat")
    await long_chat.list_before("long_chat", 200, 5)
    await long_chat.list_before("long_chat", None, 5)
    await long_chat.list_after("long_chat", 200, 5)

    queries = tables.faults.bodies("Query")
    assert queries
    assert all(query["ConsistentRead"] for query in queries)


HINTS: dict[str, Callable[[int], int | None]] = {
    "right": lambda seq: ts_of(seq),
    "none": lambda seq: None,
    "a little early": lambda seq: ts_of(seq) - 1,
    "a little late": lambda seq: ts_of(seq) + 1,
    "of a neighbour": lambda seq: ts_of(seq + 1),
    "far before": lambda seq: 0,
    "far after": lambda seq: ts_of(TOP) + 10**12,
    "the largest": lambda seq: 2**53 - 1,
    "beyond": lambda seq: 2**60,
}


@pytest.mark.parametrize("hint", HINTS)
async def test_page_by_seq_is_the_adjacent_run_with_any_hint(
    long_chat: Messages, hint: str
) -> None:
    """A wrong hint must not change the result, at the ends and in the middle."""
    for seq in (1, 2, 41, 150, 299, 300, 301):
        before = await long_chat.list_before("long_chat", seq, 10, HINTS[hint](seq))
        assert seqs(before) == list(range(max(1, seq - 10), seq)), seq
    for seq in (0, 1, 39, 150, 298, 299, 300):
        after = await long_chat.list_after("long_chat", seq, 10, HINTS[hint](seq))
        assert seqs(after) == list(range(seq + 1, min(TOP, seq + 10) + 1)), seq


async def test_right_hint_takes_one_query(long_chat: Messages, tables: Tables) -> None:
    """A client that scrolls sends the ts of its first or last message."""
    for seq in (2, 150, 290, 301):
        tables.faults.requests.clear()

        await long_chat.list_before("long_chat", seq, 10, ts_of(seq))
        await long_chat.list_after("long_chat", seq - 2, 10, ts_of(seq - 2))

        # At the head, another query checks for expired messages above it.
        assert len(tables.faults.requests) == (3 if seq == 301 else 2), seq


async def test_page_without_a_hint_takes_few_queries(long_chat: Messages, tables: Tables) -> None:
    """The search uses small reads, and then the page is read."""
    for seq in (5, 100, 150, 250, 300):
        tables.faults.requests.clear()

        await long_chat.list_before("long_chat", seq, 10)

        assert len(tables.faults.requests) <= 8, seq


async def test_newest_page_without_a_seq_ends_at_the_head(long_chat: Messages) -> None:
    """A client that opens a chat has no seq."""
    assert seqs(await long_chat.list_before("long_chat", None, 5)) == [296, 297, 298, 299, 300]
    assert await long_chat.list_before("none", None, 5) == []


@pytest.mark.parametrize("before", [0, 1])
async def test_page_before_the_first_message_is_empty(long_chat: Messages, before: int) -> None:
    """The first message has seq 1."""
    assert await long_chat.list_before("long_chat", before, 10) == []


async def test_page_not_adjacent_to_a_stored_message_is_empty(long_chat: Messages) -> None:
    """The caller joins runs. A run that is not adjacent would hide a gap."""
    assert await long_chat.list_before("long_chat", TOP + 2, 10) == []
    assert await long_chat.list_after("long_chat", TOP + 1, 10) == []


@pytest.mark.parametrize("limit", [0, 201])
async def test_page_limit_out_of_bounds_is_refused(long_chat: Messages, limit: int) -> None:
    """Every page has a maximum size."""
    with pytest.raises(BadRequest, match="limit"):
        await long_chat.list_before("long_chat", 10, limit)
    with pytest.raises(BadRequest, match="limit"):
        await long_chat.list_after("long_chat", 10, limit)


async def test_joined_pages_from_either_end_are_the_whole_chat(
    long_chat: Messages,
) -> None:
    """The pages are read like a client that scrolls, with hints."""
    down: list[Message] = []
    page = await long_chat.list_before("long_chat", None, 37)
    while page:
        down = page + down
        page = await long_chat.list_before("long_chat", down[0].seq, 37, down[0].ts)
    up: list[Message] = []
    page = await long_chat.list_after("long_chat", 0, 200)
    while page:
        up += page
        page = await long_chat.list_after("long_chat", up[-1].seq, 200, up[-1].ts)

    assert seqs(down) == list(range(1, TOP + 1))
    assert up == down


async def test_run_ends_before_a_missing_message(
    repository: Messages,
) -> None:
    """A later batch may be stored before an earlier one, and the gap must not be hidden."""
    stored = [*range(1, 51), *range(61, 101)]
    await repository.put_batch(batch(*map(message, stored)), timeout_s=20)

    assert seqs(await repository.list_before("d-1", None, 50)) == list(range(61, 101))
    assert seqs(await repository.list_before("d-1", 65, 50)) == [61, 62, 63, 64]
    assert await repository.list_before("d-1", 61, 50) == []
    assert await repository.list_before("d-1", 56, 50) == []
    assert seqs(await repository.list_before("d-1", 51, 3)) == [48, 49, 50]
    assert seqs(await repository.list_after("d-1", 48, 50)) == [49, 50]
    assert await repository.list_after("d-1", 50, 50) == []
    assert await repository.list_after("d-1", 55, 50) == []
    assert seqs(await repository.list_after("d-1", 60, 2)) == [61, 62]


def expiring_message(seq: int, expires_at: int, **changes: Any) -> Message:
    """Create a message with an expiry."""
    return msgspec.structs.replace(message(seq), expires_at=expires_at, **changes)


def seqs_of_readable(run: list[Message]) -> list[int]:
    """Return the seqs of messages that are not tombstones."""
    assert not any(each.body for each in run if each.deleted)
    return [each.seq for each in run if not each.deleted]


@pytest.fixture
async def expired_chat(repository: Messages) -> Messages:
    """A chat of 10 messages: 1, 4, 5 and 10 have expired, and 7 will expire."""
    expiries = dict.fromkeys((1, 4, 5, 10), NOW_S) | {7: NOW_S + 1}
    history = [
        expiring_message(seq, expiries[seq]) if seq in expiries else message(seq)
        for seq in range(1, 11)
    ]
    await repository.put_batch(batch(*history), timeout_s=20)
    return repository


async def delete_expired_items(tables: Tables) -> None:
    """Delete expired items, as DynamoDB's TTL does eventually."""
    for item in await tables.scan("messages"):
        if int(item.get("expires_at", {"N": str(NOW_S + 1)})["N"]) <= NOW_S:
            key = {"chatid": item["chatid"], "ts": item["ts"]}
            table = tables.settings.table_prefix + "messages"
            await tables.client.call("delete_item", {"TableName": table, "Key": key})


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_run_has_tombstones_of_expired_messages(
    expired_chat: Messages, tables: Tables, is_deleted: bool
) -> None:
    """Runs are contiguous whether or not DynamoDB has deleted the expired items."""
    if is_deleted:
        await delete_expired_items(tables)
        assert len(await tables.scan("messages")) == 6 + 5

    for run, first, last in (
        (await expired_chat.list_before("d-1", None, 20), 1, 10),
        (await expired_chat.list_before("d-1", 11, 3), 8, 10),
        (await expired_chat.list_before("d-1", 8, 4), 4, 7),
        (await expired_chat.list_before("d-1", 6, 2, message(6).ts), 4, 5),
        (await expired_chat.list_before("d-1", 2, 5), 1, 1),
        (await expired_chat.list_after("d-1", 0, 2), 1, 2),
        (await expired_chat.list_after("d-1", 3, 20), 4, 10),
        (await expired_chat.list_after("d-1", 3, 3, message(3).ts), 4, 6),
        (await expired_chat.list_after("d-1", 9, 5), 10, 10),
    ):
        assert seqs(run) == list(range(first, last + 1))
        assert seqs_of_readable(run) == [
            seq for seq in range(first, last + 1) if seq in {2, 3, 6, 7, 8, 9}
        ]
    assert await expired_chat.list_after("d-1", 10, 5) == []


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_head_is_the_newest_message_even_if_it_expired(
    expired_chat: Messages, tables: Tables, is_deleted: bool
) -> None:
    """Its seq must not be assigned again, even after its item was deleted."""
    if is_deleted:
        await delete_expired_items(tables)

    head = await expired_chat.find_head("d-1")

    assert head is not None
    assert (head.seq, head.ts, head.body, head.deleted) == (10, message(10).ts, "", True)


async def test_tombstone_keeps_sender_and_ref(expired_chat: Messages, tables: Tables) -> None:
    """A retry after a loss of Redis still finds the expired message."""
    before = await expired_chat.list_before("d-1", 5, 1)
    await delete_expired_items(tables)

    assert await expired_chat.list_before("d-1", 5, 1) == before
    assert before == [expiring_message(4, NOW_S, body="", deleted=True)]


async def test_missing_message_without_a_marker_ends_a_run(
    expired_chat: Messages, tables: Tables
) -> None:
    """Only messages with an expiry have a marker. Any other gap must not be hidden."""
    key = {"chatid": {"S": "d-1"}, "ts": {"N": str(message(8).ts)}}
    table = tables.settings.table_prefix + "messages"
    await tables.client.call("delete_item", {"TableName": table, "Key": key})
    await delete_expired_items(tables)

    assert seqs(await expired_chat.list_before("d-1", None, 20)) == [9, 10]
    assert seqs(await expired_chat.list_after("d-1", 0, 20)) == list(range(1, 8))
    assert await expired_chat.list_before("d-1", 9, 20) == []


async def test_filled_hole_is_a_tombstone_until_the_message_is_stored(
    repository: Messages,
) -> None:
    """A chat can be read past a lost message. A late write replaces the tombstone."""
    history = [message(seq) for seq in (1, 2, 5, 6)]
    await repository.put_batch(batch(*history), timeout_s=20)

    await repository.fill_hole("d-1", 4, message(5).ts - 1)
    await repository.fill_hole("d-1", 3, message(5).ts - 2)

    run = await repository.list_before("d-1", None, 10)
    assert seqs(run) == [1, 2, 3, 4, 5, 6]
    assert seqs_of_readable(run) == [1, 2, 5, 6]
    await repository.put_batch(batch(message(3)), timeout_s=20)
    assert seqs_of_readable(await repository.list_after("d-1", 0, 10)) == [1, 2, 3, 5, 6]


async def test_history_of_large_bodies_is_read_over_several_queries(
    repository: Messages,
) -> None:
    """The 1 MB limit of a Query limits neither the page nor the search."""
    large = [message(seq, body="x" * 16_000) for seq in range(1, 201)]
    await repository.put_batch(batch(*large), timeout_s=20)

    run = await repository.list_before("d-1", 171, 150)
    later = await repository.list_after("d-1", 60, 100)

    assert seqs(run) == list(range(21, 171))
    assert seqs(later) == list(range(61, 161))


async def test_items_with_ts_out_of_seq_order_raise_corrupt_data(
    repository: Messages,
) -> None:
    """A wrong order must not cause an endless search or a wrong page."""
    rows = [message(seq) for seq in range(1, 201)]
    rows[149] = message(900, ts=rows[149].ts)
    await repository.put_batch(batch(*rows), timeout_s=20)

    with pytest.raises(CorruptData, match="is out of order"):
        await repository.list_before("d-1", 951, 10, rows[149].ts + 1)
