"""Table `messages` on a real server: batches in, the five queries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chatserver.errors import BadRequest, CorruptData, Unavailable
from chatserver.protocol.frames import Message
from chatserver.warm.messages import MessageRepository
from chatserver.warm.paging import Page
from tests.integration.warm_support import (
    START_TS,
    STEP_US,
    FixedClock,
    Tables,
    batch,
    expiring,
    message,
    reply,
    seqs,
)

pytest_plugins = ["tests.integration.warm_fixtures"]

NOW_S = START_TS // 1_000_000 + 10_000
GONE, ALIVE = NOW_S - 1, NOW_S + 1


@pytest.fixture
def repository(tables: Tables) -> MessageRepository:
    """The repository under test; its clock stands still."""
    return MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))


async def pages(
    read: Callable[..., Awaitable[Page[Message]]], *key: Any, limit: int, **more: Any
) -> list[list[Message]]:
    """Read page by page to the end."""
    page = await read(*key, limit=limit, **more)
    found = [page.items]
    while page.next is not None:
        page = await read(*key, limit=limit, start=page.next, **more)
        found.append(page.items)
    return found


# put_batch


async def test_batch_put_is_read_back_as_it_was(repository: MessageRepository) -> None:
    """Every field of a message survives, with any text in it."""
    sent = [
        message(1, body="näive 🙂 \u202e\t\n 'quoted' \"double\""),
        message(2, reply_to=1, kind="image"),
        message(3, body="x" * 16_384),
    ]

    await repository.put_batch(batch(*sent), timeout_s=5)

    page = await repository.list_chat("d-1", limit=10, newest_first=False)
    assert page.items == sent


async def test_batch_of_more_than_25_goes_in_calls_of_25(
    repository: MessageRepository, tables: Tables
) -> None:
    """AWS takes 25 items in a call."""
    await repository.put_batch(batch(*map(message, range(1, 61))), timeout_s=5)

    calls = tables.faults.bodies("BatchWriteItem")
    sizes = [len(writes) for call in calls for writes in call["RequestItems"].values()]
    assert sizes == [25, 25, 10]
    assert len(await tables.scan("messages")) == 60


async def test_batch_put_again_changes_nothing(
    repository: MessageRepository, tables: Tables
) -> None:
    """The persist worker may write the same batch twice, at any time."""
    items = batch(*map(message, range(1, 31)), receiver="bob")
    await repository.put_batch(items, timeout_s=5)
    before = await tables.scan("messages")

    later = MessageRepository(tables.client, tables.settings, FixedClock(NOW_S + 86_400))
    await later.put_batch(items, timeout_s=5)

    assert await tables.scan("messages") == before


async def test_batch_with_one_key_twice_stores_the_later_one(
    repository: MessageRepository,
) -> None:
    """DynamoDB would refuse the whole call."""
    first, second = message(1, body="first"), message(1, body="second")

    await repository.put_batch(batch(first, message(2), second), timeout_s=5)

    page = await repository.list_chat("d-1", limit=10, newest_first=False)
    assert [each.body for each in page.items] == ["second", "text 2"]


async def test_empty_batch_makes_no_call(repository: MessageRepository, tables: Tables) -> None:
    """Nothing to write costs nothing."""
    await repository.put_batch([], timeout_s=5)

    assert tables.faults.requests == []


async def test_batch_written_in_part_tries_the_rest_again_and_nothing_else(
    repository: MessageRepository, tables: Tables, no_backoff: None
) -> None:
    """Unprocessed items alone are repeated until all are stored."""

    tables.faults.leave_unprocessed(10, 14)

    await repository.put_batch(batch(*map(message, range(1, 26))), timeout_s=5)

    sent = [
        [int(write["PutRequest"]["Item"]["seq"]["N"]) for write in writes]
        for body in tables.faults.bodies("BatchWriteItem")
        for writes in body["RequestItems"].values()
    ]
    page = await repository.list_chat("d-1", limit=100, newest_first=False)
    assert sent == [list(range(1, 26)), list(range(11, 26)), [25]]
    assert seqs(page.items) == list(range(1, 26))


async def test_batch_never_written_whole_is_unavailable_after_its_tries(
    repository: MessageRepository, tables: Tables, no_backoff: None
) -> None:
    """A table over its capacity ends in an error that names it, not in a silent loss."""
    everything = lambda body: (200, {"UnprocessedItems": body["RequestItems"]})  # noqa: E731
    tables.faults.add("BatchWriteItem", *[everything] * 50)

    with pytest.raises(Unavailable, match=r"3 of 3 items of .*messages not written"):
        await repository.put_batch(batch(*map(message, range(1, 4))), timeout_s=5)

    tries = tables.faults.bodies("BatchWriteItem")
    assert len(tries) == tables.settings.attempts_max


async def test_batch_not_written_in_time_is_unavailable(
    repository: MessageRepository, tables: Tables
) -> None:
    """The deadline is the caller's: a lease may end with it."""
    everything = lambda body: (200, {"UnprocessedItems": body["RequestItems"]})  # noqa: E731
    tables.faults.add("BatchWriteItem", *[everything] * 50)

    with pytest.raises(Unavailable, match=r"not done in 0\.1 s; before that: .*not written"):
        await repository.put_batch(batch(message(1)), timeout_s=0.1)


async def test_batch_whose_answer_is_lost_is_stored_once(
    repository: MessageRepository, tables: Tables, no_backoff: None
) -> None:
    """Written, but the answer was cut off on its way: the next try writes the same items."""
    tables.faults.lose_answers("BatchWriteItem", times=2)

    await repository.put_batch(batch(message(1), message(2)), timeout_s=5)

    page = await repository.list_chat("d-1", limit=10)
    assert seqs(page.items) == [2, 1]
    assert len(tables.faults.bodies("BatchWriteItem")) == 3


async def test_batch_with_an_item_that_dynamodb_refuses_is_corrupt_data(
    repository: MessageRepository, tables: Tables
) -> None:
    """Too large for the table: told at once and stored in no part, so that the caller bisects."""
    too_large = message(2, body="x" * 410_000)

    with pytest.raises(CorruptData, match="size"):
        await repository.put_batch(batch(message(1), too_large, message(3)), timeout_s=5)

    assert await tables.scan("messages") == []
    assert len(tables.faults.bodies("BatchWriteItem")) == 1


async def test_batch_with_an_item_that_is_not_unicode_is_corrupt_data(
    repository: MessageRepository,
) -> None:
    """Half a surrogate pair cannot be stored, and is the item's fault, not the server's."""
    with pytest.raises(CorruptData):
        await repository.put_batch(batch(message(1, body="\ud83d")), timeout_s=5)


# the five queries


@pytest.fixture
async def talk(repository: MessageRepository) -> MessageRepository:
    """Seven messages between alice and bob in d-1, three of alice in the group g-1."""
    for seq in range(1, 8):
        sender, receiver = ("alice", "bob") if seq % 2 else ("bob", "alice")
        await repository.put_batch(batch(message(seq, sender=sender), receiver=receiver), 5)
    group = [message(seq, chat="g-1", ts=START_TS + seq * STEP_US + 1) for seq in range(1, 4)]
    await repository.put_batch(batch(*group), 5)
    return repository


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
async def test_chat_paged_in_either_direction_is_whole(talk: MessageRepository, limit: int) -> None:
    """Each page is full but the last, nothing comes twice and nothing is left out."""
    down = await pages(talk.list_chat, "d-1", limit=limit)
    up = await pages(talk.list_chat, "d-1", limit=limit, newest_first=False)

    assert seqs([each for page in down for each in page]) == [7, 6, 5, 4, 3, 2, 1]
    assert seqs([each for page in up for each in page]) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(page) for page in down[:-1]] == [limit] * (len(down) - 1)
    assert len(down) == -(-7 // limit)


async def test_chat_between_two_times_includes_both(talk: MessageRepository) -> None:
    """The range is closed at both ends."""
    found = await pages(
        talk.list_chat_between, "d-1", START_TS + 3 * STEP_US, START_TS + 5 * STEP_US, limit=2
    )

    assert [seqs(page) for page in found] == [[5, 4], [3]]


async def test_chat_between_times_in_the_wrong_order_is_refused(talk: MessageRepository) -> None:
    """A range that cannot hold anything is the caller's mistake."""
    with pytest.raises(BadRequest, match="from_ts"):
        await talk.list_chat_between("d-1", 2, 1, limit=1)


async def test_sent_lists_what_a_user_sent_to_any_chat(talk: MessageRepository) -> None:
    """By time, over chats."""
    found = await pages(talk.list_sent, "alice", limit=3, newest_first=False)

    places = [(each.chat, each.seq) for page in found for each in page]
    assert [len(page) for page in found] == [3, 3, 1]
    assert places == [
        ("d-1", 1),
        ("g-1", 1),
        ("g-1", 2),
        ("d-1", 3),
        ("g-1", 3),
        ("d-1", 5),
        ("d-1", 7),
    ]


async def test_sent_between_two_times_is_only_those(talk: MessageRepository) -> None:
    """The sender's index is sorted by time."""
    page = await talk.list_sent(
        "alice", START_TS + 2 * STEP_US, START_TS + 3 * STEP_US + 1, limit=10, newest_first=False
    )

    assert [(each.chat, each.seq) for each in page.items] == [("g-1", 2), ("d-1", 3), ("g-1", 3)]


async def test_received_lists_direct_messages_to_a_user(talk: MessageRepository) -> None:
    """Group messages have no receiver: the index is sparse."""
    found = await pages(talk.list_received, "bob", limit=3)

    assert [seqs(page) for page in found] == [[7, 5, 3], [1]]
    between = await talk.list_received("bob", START_TS, START_TS + 3 * STEP_US, limit=10)
    assert seqs(between.items) == [3, 1]


async def test_active_lists_a_chats_messages_but_the_deleted(
    talk: MessageRepository, tables: Tables
) -> None:
    """The status index answers "active" alone, in the order of time."""
    row = next(
        r
        for r in await tables.scan("messages")
        if (r["chatid"]["S"], r["seq"]["N"]) == ("d-1", "4")
    )
    ts = int(row["ts"]["N"])
    await tables.put_rows(
        row | {"status": {"S": "deleted"}, "status_ts": {"S": f"deleted#{ts:020d}"}}
    )

    found = await pages(talk.list_active, "d-1", limit=4)

    assert [seqs(page) for page in found] == [[7, 6, 5, 3], [2, 1]]


async def test_index_pages_carry_whole_messages(talk: MessageRepository) -> None:
    """The index has keys only; the items come from the table."""
    sent = await talk.list_sent("bob", limit=1)

    assert sent.items == [message(6, sender="bob")]


async def test_index_row_of_an_item_that_changed_since_is_left_out(
    talk: MessageRepository, tables: Tables
) -> None:
    """An index lags behind its table; the table decides, and the page is still full."""
    page = await talk.list_sent("alice", limit=1)
    stale = {
        "chatid": {"S": "d-1"},
        "ts": {"N": str(START_TS + 99 * STEP_US)},
        "sender_id": {"S": "alice"},
    }
    lagging = {"Items": [stale], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": stale}
    tables.faults.add("Query", reply(lagging))

    again = await talk.list_sent("alice", limit=1)

    assert again == page


async def test_index_page_whose_items_come_in_parts_is_whole(
    talk: MessageRepository, tables: Tables, no_backoff: None
) -> None:
    """Keys that DynamoDB did not get to are asked for again."""

    def none_yet(body: dict[str, Any]) -> Any:
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    tables.faults.add("BatchGetItem", none_yet, none_yet)

    page = await talk.list_received("alice", limit=10)

    assert seqs(page.items) == [6, 4, 2]


async def test_index_page_whose_items_never_come_is_unavailable(
    talk: MessageRepository, tables: Tables, no_backoff: None
) -> None:
    """A page is whole or an error; never silently short."""
    none_yet = lambda body: (200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]})  # noqa: E731
    tables.faults.add("BatchGetItem", *[none_yet] * 50)

    with pytest.raises(Unavailable, match="not read"):
        await talk.list_received("alice", limit=10)


async def test_page_token_of_another_user_is_refused(talk: MessageRepository) -> None:
    """A token cannot be bent to read another partition."""
    page = await talk.list_sent("alice", limit=1)
    assert page.next is not None

    with pytest.raises(BadRequest, match="page token"):
        await talk.list_sent("bob", limit=1, start=page.next)


async def test_page_of_nobody_is_empty(talk: MessageRepository) -> None:
    """Nothing there is no error."""
    page = await talk.list_sent("nobody", limit=10)

    assert page == Page([], None)


# expiry


@pytest.mark.parametrize("query", ["chat", "sent", "active"])
async def test_run_of_expired_items_never_makes_a_page_short(
    repository: MessageRepository, tables: Tables, query: str
) -> None:
    """A hundred expired rows between live ones, or after them, are passed over."""
    expired = {*range(3, 103), *range(105, 125)}
    for seq in range(1, 125):
        await tables.put_rows(expiring(seq, GONE if seq in expired else ALIVE))
    read: tuple[Any, str] = {
        "chat": (repository.list_chat, "d-1"),
        "sent": (repository.list_sent, "alice"),
        "active": (repository.list_active, "d-1"),
    }[query]

    up = await pages(*read, limit=3, newest_first=False)
    down = await pages(*read, limit=2)

    assert [seqs(page) for page in up] == [[1, 2, 103], [104]]
    assert [seqs(page) for page in down] == [[104, 103], [2, 1]]


async def test_long_run_of_expired_items_costs_few_queries(
    repository: MessageRepository, tables: Tables
) -> None:
    """The rows looked at in one Query grow while nothing is found."""
    for seq in range(1, 301):
        await tables.put_rows(expiring(seq, GONE))
    tables.faults.requests.clear()

    page = await repository.list_chat("d-1", limit=1)

    assert page == Page([], None)
    assert len(tables.faults.bodies("Query")) <= 9


async def test_item_at_the_second_of_its_expiry_is_gone(
    repository: MessageRepository, tables: Tables
) -> None:
    """The second that it is given is the first without it."""
    await tables.put_rows(expiring(1, NOW_S), expiring(2, NOW_S + 1))

    page = await repository.list_chat("d-1", limit=10)

    assert seqs(page.items) == [2]


async def test_page_reads_on_where_dynamodb_cut_it(
    repository: MessageRepository, tables: Tables
) -> None:
    """One Query returns 1 MB at most; a page of large bodies takes several."""
    large = [message(seq, body="x" * 16_000) for seq in range(1, 101)]
    await repository.put_batch(batch(*large), timeout_s=20)
    tables.faults.requests.clear()

    page = await repository.list_chat("d-1", limit=100)

    assert len(page.items) == 100
    assert page.next is None
    assert len(tables.faults.bodies("Query")) > 1


async def test_row_that_is_no_message_is_named(
    repository: MessageRepository, tables: Tables
) -> None:
    """Stored data that breaks the model pages someone instead of vanishing from a page."""
    tables.faults.add("Query", reply({"Items": [{"chatid": {"S": "d-1"}, "ts": {"N": "1"}}]}))

    with pytest.raises(CorruptData, match="d-1"):
        await repository.list_chat("d-1", limit=1)
