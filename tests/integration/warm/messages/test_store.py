"""Table `messages` on a real server: batches go in."""

from __future__ import annotations

import pytest

from chatserver.errors import CorruptData, Unavailable
from chatserver.warm.messages.message_queries import MessageIndexes
from chatserver.warm.messages.store import MessageRepository
from tests.integration.warm.support import START_TS, FixedClock, Tables, batch, message, seqs
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures"]

NOW_S = START_TS // 1_000_000 + 10_000
GONE, ALIVE = NOW_S - 1, NOW_S + 1


@pytest.fixture
def repository(tables: Tables) -> MessageRepository:
    """The repository under test; its clock stands still."""
    return MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))


@pytest.fixture
def patterns(tables: Tables) -> MessageIndexes:
    """Reads what was written."""
    return MessageIndexes(tables.client, tables.settings, FixedClock(NOW_S))


# put_batch


async def test_batch_put_is_read_back_as_it_was(
    repository: MessageRepository, patterns: MessageIndexes
) -> None:
    """Every field of a message survives, with any text in it."""
    sent = [
        message(1, body="näive 🙂 \u202e\t\n 'quoted' \"double\""),
        message(2, reply_to=1, kind="image"),
        message(3, body="x" * 16_384),
    ]

    await repository.put_batch(batch(*sent), timeout_s=20)

    page = await patterns.list_chat("d-1", limit=10, newest_first=False)
    assert page.items == sent


async def test_batch_of_more_than_25_goes_in_calls_of_25(
    repository: MessageRepository, tables: Tables
) -> None:
    """AWS takes 25 items in a call."""
    await repository.put_batch(batch(*map(message, range(1, 61))), timeout_s=20)

    calls = tables.faults.bodies("BatchWriteItem")
    sizes = [len(writes) for call in calls for writes in call["RequestItems"].values()]
    assert sizes == [25, 25, 10]
    assert len(await tables.scan("messages")) == 60


async def test_batch_put_again_changes_nothing(
    repository: MessageRepository, tables: Tables
) -> None:
    """The persist worker may write the same batch twice, at any time."""
    items = batch(*map(message, range(1, 31)), receiver="bob")
    await repository.put_batch(items, timeout_s=20)
    before = await tables.scan("messages")

    later = MessageRepository(tables.client, tables.settings, FixedClock(NOW_S + 86_400))
    await later.put_batch(items, timeout_s=20)

    assert await tables.scan("messages") == before


async def test_batch_with_one_key_twice_stores_the_later_one(
    repository: MessageRepository, patterns: MessageIndexes
) -> None:
    """DynamoDB would refuse the whole call."""
    first, second = message(1, body="first"), message(1, body="second")

    await repository.put_batch(batch(first, message(2), second), timeout_s=20)

    page = await patterns.list_chat("d-1", limit=10, newest_first=False)
    assert [each.body for each in page.items] == ["second", "text 2"]


async def test_empty_batch_makes_no_call(repository: MessageRepository, tables: Tables) -> None:
    """Nothing to write costs nothing."""
    await repository.put_batch([], timeout_s=20)

    assert tables.faults.requests == []


async def test_batch_written_in_part_tries_the_rest_again_and_nothing_else(
    repository: MessageRepository, tables: Tables, no_backoff: None, patterns: MessageIndexes
) -> None:
    """Unprocessed items alone are repeated until all are stored."""

    tables.faults.leave_unprocessed(10, 14)

    await repository.put_batch(batch(*map(message, range(1, 26))), timeout_s=20)

    sent = [
        [int(write["PutRequest"]["Item"]["seq"]["N"]) for write in writes]
        for body in tables.faults.bodies("BatchWriteItem")
        for writes in body["RequestItems"].values()
    ]
    page = await patterns.list_chat("d-1", limit=100, newest_first=False)
    assert sent == [list(range(1, 26)), list(range(11, 26)), [25]]
    assert seqs(page.items) == list(range(1, 26))


async def test_batch_not_written_in_time_is_unavailable(
    repository: MessageRepository, tables: Tables
) -> None:
    """The deadline is the caller's: a lease may end with it."""
    everything = lambda body: (200, {"UnprocessedItems": body["RequestItems"]})  # noqa: E731
    tables.faults.add("BatchWriteItem", *[everything] * 5000)

    async def is_told_why() -> bool:
        """On a machine that is held up the time may be over before there was an answer."""
        with pytest.raises(Unavailable, match=r"timed out after 0\.1 s") as caught:
            await repository.put_batch(batch(message(1)), timeout_s=0.1)
        return "s; last error: " in caught.value.message and "not written" in caught.value.message

    await eventually(is_told_why)
    assert await tables.scan("messages") == []


async def test_batch_whose_answer_is_lost_is_stored_once(
    repository: MessageRepository, tables: Tables, no_backoff: None, patterns: MessageIndexes
) -> None:
    """Written, but the answer was cut off on its way: the next try writes the same items."""
    tables.faults.lose_answers("BatchWriteItem", times=2)

    await repository.put_batch(batch(message(1), message(2)), timeout_s=20)

    page = await patterns.list_chat("d-1", limit=10)
    assert seqs(page.items) == [2, 1]
    assert len(tables.faults.bodies("BatchWriteItem")) == 3


async def test_batch_with_an_item_that_dynamodb_refuses_is_corrupt_data(
    repository: MessageRepository, tables: Tables
) -> None:
    """An item that is too large fails the whole batch at once, so that the caller bisects it."""
    too_large = message(2, body="x" * 410_000)

    with pytest.raises(CorruptData, match="size"):
        await repository.put_batch(batch(message(1), too_large, message(3)), timeout_s=20)

    assert await tables.scan("messages") == []
    assert len(tables.faults.bodies("BatchWriteItem")) == 1


async def test_batch_with_an_item_that_is_not_unicode_is_corrupt_data(
    repository: MessageRepository,
) -> None:
    """Half a surrogate pair cannot be stored, and is the item's fault, not the server's."""
    with pytest.raises(CorruptData):
        await repository.put_batch(batch(message(1, body="\ud83d")), timeout_s=20)
