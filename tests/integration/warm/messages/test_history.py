"""History by seq in the warm tier, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chatserver.errors import BadRequest, CorruptData
from chatserver.protocol.frames import Message
from chatserver.warm.messages.store import MessageRepository
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

pytest_plugins = ["tests.integration.warm.fixtures"]

NOW_S = START_TS // 1_000_000 + 100_000
TOP = 300


def ts_of(seq: int) -> int:
    """The ts of a message of the chat `long`: bursts of 40, an hour between them."""
    return START_TS + seq * STEP_US // 100 + (seq // 40) * 3600 * STEP_US


@pytest.fixture
def repository(tables: Tables) -> MessageRepository:
    """The repository under test; its clock stands still."""
    return MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))


@pytest.fixture
async def long(repository: MessageRepository) -> MessageRepository:
    """A chat of 300 messages."""
    history = [message(seq, chat="long", ts=ts_of(seq)) for seq in range(1, TOP + 1)]
    await repository.put_batch(batch(*history), timeout_s=20)
    return repository


async def test_head_is_the_newest_message(long: MessageRepository) -> None:
    """The floor of seq and ts after Redis is lost."""
    head = await long.find_head("long")

    assert head == message(TOP, chat="long", ts=ts_of(TOP))


async def test_head_of_an_empty_chat_is_none(repository: MessageRepository) -> None:
    """A chat without messages starts at seq 1."""
    assert await repository.find_head("none") is None


async def test_head_counts_an_expired_message(
    repository: MessageRepository, tables: Tables
) -> None:
    """A seq is assigned once, also that of an unreadable message."""
    await tables.put_rows(expiring(1, NOW_S + 1), expiring(2, NOW_S - 1))

    head = await repository.find_head("d-1")

    assert head is not None
    assert head.seq == 2


async def test_head_is_read_consistently(long: MessageRepository, tables: Tables) -> None:
    """Everything stored before the call counts: reads by seq need that."""
    await long.find_head("long")
    await long.list_before("long", 200, 5)
    await long.list_before("long", None, 5)
    await long.list_after("long", 200, 5)

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
async def test_page_by_seq_is_the_run_that_touches_it_whatever_the_hint(
    long: MessageRepository, hint: str
) -> None:
    """Correctness does not rest on the hint, neither at the ends nor in the middle."""
    for seq in (1, 2, 41, 150, 299, 300, 301):
        before = await long.list_before("long", seq, 10, HINTS[hint](seq))
        assert seqs(before) == list(range(max(1, seq - 10), seq)), seq
    for seq in (0, 1, 39, 150, 298, 299, 300):
        after = await long.list_after("long", seq, 10, HINTS[hint](seq))
        assert seqs(after) == list(range(seq + 1, min(TOP, seq + 10) + 1)), seq


async def test_right_hint_costs_one_query(long: MessageRepository, tables: Tables) -> None:
    """A client that scrolls knows the time of what it scrolls from."""
    for seq in (2, 150, 290, 301):
        tables.faults.requests.clear()

        await long.list_before("long", seq, 10, ts_of(seq))
        await long.list_after("long", seq - 2, 10, ts_of(seq - 2))

        # At the head, one more makes sure that nothing above it has expired.
        assert len(tables.faults.requests) == (3 if seq == 301 else 2), seq


async def test_search_without_a_hint_costs_few_queries(
    long: MessageRepository, tables: Tables
) -> None:
    """Some small reads, then the page."""
    for seq in (5, 100, 150, 250, 300):
        tables.faults.requests.clear()

        await long.list_before("long", seq, 10)

        assert len(tables.faults.requests) <= 8, seq


async def test_newest_page_without_a_seq_ends_at_the_head(long: MessageRepository) -> None:
    """How a chat is opened."""
    assert seqs(await long.list_before("long", None, 5)) == [296, 297, 298, 299, 300]
    assert await long.list_before("none", None, 5) == []


@pytest.mark.parametrize("before", [0, 1])
async def test_before_the_beginning_there_is_nothing(long: MessageRepository, before: int) -> None:
    """The first message has seq 1."""
    assert await long.list_before("long", before, 10) == []


async def test_page_that_does_not_touch_what_is_stored_is_empty(long: MessageRepository) -> None:
    """The caller joins runs; one that does not reach the place asked for would hide a hole."""
    assert await long.list_before("long", TOP + 2, 10) == []
    assert await long.list_after("long", TOP + 1, 10) == []


@pytest.mark.parametrize("limit", [0, 201])
async def test_page_out_of_its_bound_is_refused(long: MessageRepository, limit: int) -> None:
    """Every page is bounded."""
    with pytest.raises(BadRequest, match="limit"):
        await long.list_before("long", 10, limit)
    with pytest.raises(BadRequest, match="limit"):
        await long.list_after("long", 10, limit)


async def test_pages_joined_from_either_end_are_the_whole_chat(long: MessageRepository) -> None:
    """A client that scrolls, with its hints."""
    down: list[Message] = []
    page = await long.list_before("long", None, 37)
    while page:
        down = page + down
        page = await long.list_before("long", down[0].seq, 37, down[0].ts)
    up: list[Message] = []
    page = await long.list_after("long", 0, 200)
    while page:
        up += page
        page = await long.list_after("long", up[-1].seq, 200, up[-1].ts)

    assert seqs(down) == list(range(1, TOP + 1))
    assert up == down


async def test_run_ends_where_a_message_is_not_stored(
    repository: MessageRepository,
) -> None:
    """Contiguous: a later batch may be stored before an earlier one, and a hole is never hidden."""
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


def ending(seq: int, ends_s: int, **changes: Any) -> Message:
    """A message that is sent to expire."""
    return msgspec.structs.replace(message(seq), expires_at=ends_s, **changes)


def alive(run: list[Message]) -> list[int]:
    """Return the seqs of messages that are not tombstones."""
    assert not any(each.body for each in run if each.deleted)
    return [each.seq for each in run if not each.deleted]


@pytest.fixture
async def mixed(repository: MessageRepository) -> MessageRepository:
    """A chat of 10 whose messages 1, 4, 5 and 10 have expired, and 7 is going to."""
    ends = dict.fromkeys((1, 4, 5, 10), NOW_S) | {7: NOW_S + 1}
    history = [ending(seq, ends[seq]) if seq in ends else message(seq) for seq in range(1, 11)]
    await repository.put_batch(batch(*history), timeout_s=20)
    return repository


async def sweep(tables: Tables) -> None:
    """Remove the items whose time is over, as DynamoDB's TTL does some day."""
    for item in await tables.scan("messages"):
        if int(item.get("expires_at", {"N": str(NOW_S + 1)})["N"]) <= NOW_S:
            key = {"chatid": item["chatid"], "ts": item["ts"]}
            table = tables.settings.table_prefix + "messages"
            await tables.client.call("delete_item", {"TableName": table, "Key": key})


@pytest.mark.parametrize("is_swept", [False, True])
async def test_run_shows_tombstones_where_messages_have_expired(
    mixed: MessageRepository, tables: Tables, is_swept: bool
) -> None:
    """Contiguous, and without what expired, whether DynamoDB has removed the items or not."""
    if is_swept:
        await sweep(tables)
        assert len(await tables.scan("messages")) == 6 + 5

    for run, first, last in (
        (await mixed.list_before("d-1", None, 20), 1, 10),
        (await mixed.list_before("d-1", 11, 3), 8, 10),
        (await mixed.list_before("d-1", 8, 4), 4, 7),
        (await mixed.list_before("d-1", 6, 2, message(6).ts), 4, 5),
        (await mixed.list_before("d-1", 2, 5), 1, 1),
        (await mixed.list_after("d-1", 0, 2), 1, 2),
        (await mixed.list_after("d-1", 3, 20), 4, 10),
        (await mixed.list_after("d-1", 3, 3, message(3).ts), 4, 6),
        (await mixed.list_after("d-1", 9, 5), 10, 10),
    ):
        assert seqs(run) == list(range(first, last + 1))
        assert alive(run) == [seq for seq in range(first, last + 1) if seq in {2, 3, 6, 7, 8, 9}]
    assert await mixed.list_after("d-1", 10, 5) == []


@pytest.mark.parametrize("is_swept", [False, True])
async def test_head_counts_what_has_expired(
    mixed: MessageRepository, tables: Tables, is_swept: bool
) -> None:
    """The seq of an expired message is never given again, though its item is gone."""
    if is_swept:
        await sweep(tables)

    head = await mixed.find_head("d-1")

    assert head is not None
    assert (head.seq, head.ts, head.body, head.deleted) == (10, message(10).ts, "", True)


async def test_tombstone_keeps_who_sent_it_and_under_which_ref(
    mixed: MessageRepository, tables: Tables
) -> None:
    """A retry after Redis was lost finds the message that was, though it is over."""
    before = await mixed.list_before("d-1", 5, 1)
    await sweep(tables)

    assert await mixed.list_before("d-1", 5, 1) == before
    assert before == [ending(4, NOW_S, body="", deleted=True)]


async def test_hole_without_a_marker_still_ends_a_run(
    mixed: MessageRepository, tables: Tables
) -> None:
    """Only what was sent to expire may be absent: anything else is not stored, and not hidden."""
    place = {"chatid": {"S": "d-1"}, "ts": {"N": str(message(8).ts)}}
    table = tables.settings.table_prefix + "messages"
    await tables.client.call("delete_item", {"TableName": table, "Key": place})
    await sweep(tables)

    assert seqs(await mixed.list_before("d-1", None, 20)) == [9, 10]
    assert seqs(await mixed.list_after("d-1", 0, 20)) == list(range(1, 8))
    assert await mixed.list_before("d-1", 9, 20) == []


async def test_filled_hole_is_a_tombstone_and_a_late_message_counts(
    repository: MessageRepository,
) -> None:
    """A chat can be read past what was lost; a write that was only late is not hidden."""
    history = [message(seq) for seq in (1, 2, 5, 6)]
    await repository.put_batch(batch(*history), timeout_s=20)

    assert await repository.fill_hole("d-1", 4, message(5).ts - 1)
    assert await repository.fill_hole("d-1", 3, message(5).ts - 2)
    assert not await repository.fill_hole("d-2", 1, message(1).ts)

    run = await repository.list_before("d-1", None, 10)
    assert seqs(run) == [1, 2, 3, 4, 5, 6]
    assert alive(run) == [1, 2, 5, 6]
    await repository.put_batch(batch(message(3)), timeout_s=20)
    assert alive(await repository.list_after("d-1", 0, 10)) == [1, 2, 3, 5, 6]


async def test_history_of_large_bodies_is_read_over_several_queries(
    repository: MessageRepository,
) -> None:
    """1 MB a Query bounds neither the page nor the search."""
    large = [message(seq, body="x" * 16_000) for seq in range(1, 201)]
    await repository.put_batch(batch(*large), timeout_s=20)

    run = await repository.list_before("d-1", 171, 150)
    later = await repository.list_after("d-1", 60, 100)

    assert seqs(run) == list(range(21, 171))
    assert seqs(later) == list(range(61, 161))


async def test_rows_whose_time_does_not_rise_with_seq_are_reported(
    repository: MessageRepository,
) -> None:
    """A broken order is an alarm, not an endless search or a wrong page."""
    rows = [message(seq) for seq in range(1, 201)]
    rows[149] = message(900, ts=rows[149].ts)
    await repository.put_batch(batch(*rows), timeout_s=20)

    with pytest.raises(CorruptData, match="is out of order"):
        await repository.list_before("d-1", 951, 10, rows[149].ts + 1)
