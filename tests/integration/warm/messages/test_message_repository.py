"""Table `messages`: batch writes."""

from __future__ import annotations

import pytest

from chatserver.errors import CorruptData, Unavailable
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import Messages
from tests.integration.warm.support import START_TS, FixedClock, Tables, batch, message, seqs
from tests.support.servers.processes import eventually

NOW_S = START_TS // 1_000_000 + 10_000


@pytest.fixture
def repository(tables: Tables) -> Messages:
    """The repository under test, with a fixed clock."""
    return Messages(tables.client, FixedClock(NOW_S))


@pytest.fixture
def queries(tables: Tables) -> MessageIndexes:
    """Queries that read the written messages."""
    return MessageIndexes(tables.client, FixedClock(NOW_S))


# put_batch


async def test_batch_put_is_read_back_unchanged(
    repository: Messages, queries: MessageIndexes
) -> None:
    """All fields of a message are stored, with any text."""
    sent = [
        message(1, body="näive 🙂 \u202e\t\n 'quoted' \"double\""),
        message(2, reply_to=1, kind="image"),
        message(3, body="x" * 16_384),
    ]

    await repository.put_batch(batch(*sent), timeout_s=20)

    page = await queries.list_chat("d-1", limit=10, newest_first=False)
    assert page.items == sent


async def test_batch_of_more_than_25_items_is_split_into_calls_of_25(
    repository: Messages, tables: Tables
) -> None:
    """AWS allows 25 items in a BatchWriteItem call."""
    await repository.put_batch(batch(*map(message, range(1, 61))), timeout_s=20)

    calls = tables.faults.bodies("BatchWriteItem")
    sizes = [len(writes) for call in calls for writes in call["RequestItems"].values()]
    assert sizes == [25, 25, 10]
    assert len(await tables.scan("messages")) == 60


async def test_batch_put_twice_changes_nothing(repository: Messages, tables: Tables) -> None:
    """The persist worker may write the same batch again at any time."""
    items = batch(*map(message, range(1, 31)), receiver="bob")
    await repository.put_batch(items, timeout_s=20)
    before = await tables.scan("messages")

    later = Messages(tables.client, FixedClock(NOW_S + 86_400))
    await later.put_batch(items, timeout_s=20)

    assert await tables.scan("messages") == before


async def test_batch_with_a_duplicate_key_stores_the_later_item(
    repository: Messages, queries: MessageIndexes
) -> None:
    """DynamoDB refuses a call with a duplicate key."""
    first, second = message(1, body="first"), message(1, body="second")

    await repository.put_batch(batch(first, message(2), second), timeout_s=20)

    page = await queries.list_chat("d-1", limit=10, newest_first=False)
    assert [each.body for each in page.items] == ["second", "text 2"]


async def test_empty_batch_makes_no_call(repository: Messages, tables: Tables) -> None:
    """An empty batch needs no request."""
    await repository.put_batch([], timeout_s=20)

    assert tables.faults.requests == []


async def test_unprocessed_items_of_a_batch_are_retried_alone(
    repository: Messages, tables: Tables, no_backoff: None, queries: MessageIndexes
) -> None:
    """Only unprocessed items are sent again, until all are stored."""

    tables.faults.leave_unprocessed(10, 14)

    await repository.put_batch(batch(*map(message, range(1, 26))), timeout_s=20)

    sent = [
        [int(write["PutRequest"]["Item"]["seq"]["N"]) for write in writes]
        for body in tables.faults.bodies("BatchWriteItem")
        for writes in body["RequestItems"].values()
    ]
    page = await queries.list_chat("d-1", limit=100, newest_first=False)
    assert sent == [list(range(1, 26)), list(range(11, 26)), [25]]
    assert seqs(page.items) == list(range(1, 26))


async def test_batch_not_written_in_time_is_unavailable(
    repository: Messages, tables: Tables
) -> None:
    """The caller sets the deadline, for example the end of a lease."""
    unprocess_all = lambda body: (200, {"UnprocessedItems": body["RequestItems"]})  # noqa: E731
    tables.faults.add("BatchWriteItem", *[unprocess_all] * 5000)

    async def has_last_error() -> bool:
        """Return whether the error has a cause.

        On a slow machine, no response may arrive in time.
        """
        with pytest.raises(Unavailable, match=r"timed out after 0\.1 s") as caught:
            await repository.put_batch(batch(message(1)), timeout_s=0.1)
        return "s; last error: " in caught.value.message and "not written" in caught.value.message

    await eventually(has_last_error)
    assert await tables.scan("messages") == []


async def test_batch_with_a_lost_response_is_stored_once(
    repository: Messages, tables: Tables, no_backoff: None, queries: MessageIndexes
) -> None:
    """The retry writes the same items again."""
    tables.faults.drop_responses("BatchWriteItem", times=2)

    await repository.put_batch(batch(message(1), message(2)), timeout_s=20)

    page = await queries.list_chat("d-1", limit=10)
    assert seqs(page.items) == [2, 1]
    assert len(tables.faults.bodies("BatchWriteItem")) == 3


async def test_batch_with_an_item_that_dynamodb_refuses_raises_corrupt_data(
    repository: Messages, tables: Tables
) -> None:
    """An item that is too large fails the whole batch at once, and the caller bisects it."""
    too_large = message(2, body="x" * 410_000)

    with pytest.raises(CorruptData, match="size"):
        await repository.put_batch(batch(message(1), too_large, message(3)), timeout_s=20)

    assert await tables.scan("messages") == []
    assert len(tables.faults.bodies("BatchWriteItem")) == 1


async def test_batch_with_a_lone_surrogate_raises_corrupt_data(
    repository: Messages,
) -> None:
    """Such a text cannot be stored, so the error is permanent."""
    with pytest.raises(CorruptData):
        await repository.put_batch(batch(message(1, body="\ud83d")), timeout_s=20)
