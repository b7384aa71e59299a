"""The access patterns of table `messages`, each on real items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chatserver.errors import BadRequest, CorruptData, Unavailable
from chatserver.protocol.frames import Message
from chatserver.warm.messages import MessageRepository
from chatserver.warm.paging import Page
from chatserver.warm.patterns import MessagePatterns
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
    """What writes the items."""
    return MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))


@pytest.fixture
def patterns(tables: Tables) -> MessagePatterns:
    """The patterns under test; their clock stands still."""
    return MessagePatterns(tables.client, tables.settings, FixedClock(NOW_S))


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


@pytest.fixture
async def talk(repository: MessageRepository, patterns: MessagePatterns) -> MessagePatterns:
    """Seven messages between alice and bob in d-1, three of alice in the group g-1."""
    for seq in range(1, 8):
        sender, receiver = ("alice", "bob") if seq % 2 else ("bob", "alice")
        await repository.put_batch(batch(message(seq, sender=sender), receiver=receiver), 5)
    group = [message(seq, chat="g-1", ts=START_TS + seq * STEP_US + 1) for seq in range(1, 4)]
    await repository.put_batch(batch(*group), 5)
    return patterns


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
async def test_chat_paged_in_either_direction_is_whole(talk: MessagePatterns, limit: int) -> None:
    """Each page is full but the last, nothing comes twice and nothing is left out."""
    down = await pages(talk.list_chat, "d-1", limit=limit)
    up = await pages(talk.list_chat, "d-1", limit=limit, newest_first=False)

    assert seqs([each for page in down for each in page]) == [7, 6, 5, 4, 3, 2, 1]
    assert seqs([each for page in up for each in page]) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(page) for page in down[:-1]] == [limit] * (len(down) - 1)
    assert len(down) == -(-7 // limit)


async def test_chat_between_two_times_includes_both(talk: MessagePatterns) -> None:
    """The range is closed at both ends."""
    found = await pages(
        talk.list_chat, "d-1", START_TS + 3 * STEP_US, START_TS + 5 * STEP_US, limit=2
    )

    assert [seqs(page) for page in found] == [[5, 4], [3]]


async def test_chat_between_times_in_the_wrong_order_is_refused(talk: MessagePatterns) -> None:
    """A range that cannot hold anything is the caller's mistake."""
    with pytest.raises(BadRequest, match="from, to"):
        await talk.list_chat("d-1", 2, 1, limit=1)


async def test_sent_lists_what_a_user_sent_to_any_chat(talk: MessagePatterns) -> None:
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


async def test_sent_between_two_times_is_only_those(talk: MessagePatterns) -> None:
    """The sender's index is sorted by time."""
    page = await talk.list_sent(
        "alice", START_TS + 2 * STEP_US, START_TS + 3 * STEP_US + 1, limit=10, newest_first=False
    )

    assert [(each.chat, each.seq) for each in page.items] == [("g-1", 2), ("d-1", 3), ("g-1", 3)]


async def test_received_lists_direct_messages_to_a_user(talk: MessagePatterns) -> None:
    """Group messages have no receiver: the index is sparse."""
    found = await pages(talk.list_received, "bob", limit=3)

    assert [seqs(page) for page in found] == [[7, 5, 3], [1]]
    between = await talk.list_received("bob", START_TS, START_TS + 3 * STEP_US, limit=10)
    assert seqs(between.items) == [3, 1]


async def test_active_lists_a_chats_messages_but_the_deleted(
    talk: MessagePatterns, tables: Tables
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


async def test_index_pages_carry_whole_messages(talk: MessagePatterns) -> None:
    """The index has keys only; the items come from the table."""
    sent = await talk.list_sent("bob", limit=1)

    assert sent.items == [message(6, sender="bob")]


async def test_index_row_of_an_item_that_changed_since_is_left_out(
    talk: MessagePatterns, tables: Tables
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
    talk: MessagePatterns, tables: Tables, no_backoff: None
) -> None:
    """Keys that DynamoDB did not get to are asked for again."""

    def none_yet(body: dict[str, Any]) -> Any:
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    tables.faults.add("BatchGetItem", none_yet, none_yet)

    page = await talk.list_received("alice", limit=10)

    assert seqs(page.items) == [6, 4, 2]


async def test_index_page_whose_items_never_come_is_unavailable(
    talk: MessagePatterns, tables: Tables, no_backoff: None
) -> None:
    """A page is whole or an error; never silently short."""
    none_yet = lambda body: (200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]})  # noqa: E731
    tables.faults.add("BatchGetItem", *[none_yet] * 50)

    with pytest.raises(Unavailable, match="not read"):
        await talk.list_received("alice", limit=10)


async def test_page_token_of_another_user_is_refused(talk: MessagePatterns) -> None:
    """A token cannot be bent to read another partition."""
    page = await talk.list_sent("alice", limit=1)
    assert page.next is not None

    with pytest.raises(BadRequest, match="page token"):
        await talk.list_sent("bob", limit=1, start=page.next)


async def test_page_of_nobody_is_empty(talk: MessagePatterns) -> None:
    """Nothing there is no error."""
    page = await talk.list_sent("nobody", limit=10)

    assert page == Page([], None)


# expiry


@pytest.mark.parametrize("query", ["chat", "sent", "active"])
async def test_run_of_expired_items_never_makes_a_page_short(
    patterns: MessagePatterns, tables: Tables, repository: MessageRepository, query: str
) -> None:
    """A hundred expired rows between live ones, or after them, are passed over."""
    expired = {*range(3, 103), *range(105, 125)}
    for seq in range(1, 125):
        await tables.put_rows(expiring(seq, GONE if seq in expired else ALIVE))
    read: tuple[Any, str] = {
        "chat": (patterns.list_chat, "d-1"),
        "sent": (patterns.list_sent, "alice"),
        "active": (patterns.list_active, "d-1"),
    }[query]

    up = await pages(*read, limit=3, newest_first=False)
    down = await pages(*read, limit=2)

    assert [seqs(page) for page in up] == [[1, 2, 103], [104]]
    assert [seqs(page) for page in down] == [[104, 103], [2, 1]]


async def test_long_run_of_expired_items_costs_few_queries(
    patterns: MessagePatterns, tables: Tables, repository: MessageRepository
) -> None:
    """The rows looked at in one Query grow while nothing is found."""
    for seq in range(1, 301):
        await tables.put_rows(expiring(seq, GONE))
    tables.faults.requests.clear()

    page = await patterns.list_chat("d-1", limit=1)

    assert page == Page([], None)
    assert len(tables.faults.bodies("Query")) <= 9


async def test_item_at_the_second_of_its_expiry_is_gone(
    patterns: MessagePatterns, tables: Tables, repository: MessageRepository
) -> None:
    """The second that it is given is the first without it."""
    await tables.put_rows(expiring(1, NOW_S), expiring(2, NOW_S + 1))

    page = await patterns.list_chat("d-1", limit=10)

    assert seqs(page.items) == [2]


async def test_page_reads_on_where_dynamodb_cut_it(
    patterns: MessagePatterns, tables: Tables, repository: MessageRepository
) -> None:
    """One Query returns 1 MB at most; a page of large bodies takes several."""
    large = [message(seq, body="x" * 16_000) for seq in range(1, 101)]
    await repository.put_batch(batch(*large), timeout_s=20)
    tables.faults.requests.clear()

    page = await patterns.list_chat("d-1", limit=100)

    assert len(page.items) == 100
    assert page.next is None
    assert len(tables.faults.bodies("Query")) > 1


async def test_row_that_is_no_message_is_named(
    patterns: MessagePatterns, tables: Tables, repository: MessageRepository
) -> None:
    """Stored data that breaks the model pages someone instead of vanishing from a page."""
    tables.faults.add("Query", reply({"Items": [{"chatid": {"S": "d-1"}, "ts": {"N": "1"}}]}))

    with pytest.raises(CorruptData, match="d-1"):
        await patterns.list_chat("d-1", limit=1)
