"""Queries of table `messages` by chat, sender, receiver and status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatserver.errors import BadRequest, CorruptData, Unavailable
from chatserver.protocol.frames import Attachment, Message
from chatserver.warm.dynamo.batches import put_items
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.paging import QueryPage
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_indexes import EVER, MessageIndexes
from chatserver.warm.messages.messages import Messages, PersistItem, encode_item
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.support import (
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

NOW_S = START_TS // 1_000_000 + 10_000
EXPIRED_AT, EXPIRES_LATER_AT = NOW_S - 1, NOW_S + 1


@pytest.fixture
def repository(tables: Tables) -> Messages:
    """The repository that writes the items."""
    return Messages(tables.client, FixedClock(NOW_S))


@pytest.fixture
def queries(tables: Tables) -> MessageIndexes:
    """The queries under test, with a clock that does not advance."""
    return MessageIndexes(tables.client, FixedClock(NOW_S))


async def list_pages(
    read: Callable[..., Awaitable[QueryPage[Message]]], *key: Any, limit: int, **more: Any
) -> list[list[Message]]:
    """Return all pages of a query."""
    page = await read(*key, limit=limit, **more)
    found = [page.items]
    while page.next is not None:
        page = await read(*key, limit=limit, start=page.next, **more)
        found.append(page.items)
    return found


@pytest.fixture
async def conversation(repository: Messages, queries: MessageIndexes) -> MessageIndexes:
    """Seven messages between alice and bob in d-1, and three of alice in the group g-1."""
    for seq in range(1, 8):
        sender, receiver = ("alice", "bob") if seq % 2 else ("bob", "alice")
        await repository.put_batch(batch(message(seq, sender=sender), receiver=receiver), 20)
    group = [message(seq, chat="g-1", ts=START_TS + seq * STEP_US + 1) for seq in range(1, 4)]
    await repository.put_batch(batch(*group), 20)
    return queries


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
async def test_chat_paged_in_either_direction_is_complete(
    conversation: MessageIndexes, limit: int
) -> None:
    """Pages are full except for the last; no message is missing or repeated."""
    down = await list_pages(conversation.list_chat, "d-1", limit=limit)
    up = await list_pages(conversation.list_chat, "d-1", limit=limit, newest_first=False)

    assert seqs([each for page in down for each in page]) == [7, 6, 5, 4, 3, 2, 1]
    assert seqs([each for page in up for each in page]) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(page) for page in down[:-1]] == [limit] * (len(down) - 1)
    assert len(down) == -(-7 // limit)


async def test_chat_between_two_times_includes_both(conversation: MessageIndexes) -> None:
    """The range includes both ends."""
    found = await list_pages(
        conversation.list_chat, "d-1", START_TS + 3 * STEP_US, START_TS + 5 * STEP_US, limit=2
    )

    assert [seqs(page) for page in found] == [[5, 4], [3]]


async def test_chat_between_times_in_the_wrong_order_is_refused(
    conversation: MessageIndexes,
) -> None:
    """A range whose end is before its start is invalid."""
    with pytest.raises(BadRequest, match="from, to"):
        await conversation.list_chat("d-1", 2, 1, limit=1)


async def test_sent_lists_messages_of_a_user_in_all_chats(conversation: MessageIndexes) -> None:
    """Messages of different chats are sorted by time."""
    found = await list_pages(conversation.list_sent, "alice", limit=3, newest_first=False)

    positions = [(each.chat, each.seq) for page in found for each in page]
    assert [len(page) for page in found] == [3, 3, 1]
    assert positions == [
        ("d-1", 1),
        ("g-1", 1),
        ("g-1", 2),
        ("d-1", 3),
        ("g-1", 3),
        ("d-1", 5),
        ("d-1", 7),
    ]


async def test_sent_between_two_times_lists_only_that_range(conversation: MessageIndexes) -> None:
    """Both ends are included, across chats."""
    page = await conversation.list_sent(
        "alice", START_TS + 2 * STEP_US, START_TS + 3 * STEP_US + 1, limit=10, newest_first=False
    )

    assert [(each.chat, each.seq) for each in page.items] == [("g-1", 2), ("d-1", 3), ("g-1", 3)]


async def test_received_lists_direct_messages_to_a_user(conversation: MessageIndexes) -> None:
    """Group messages have no receiver and are not in the sparse index."""
    found = await list_pages(conversation.list_received, "bob", limit=3)

    assert [seqs(page) for page in found] == [[7, 5, 3], [1]]
    between = await conversation.list_received("bob", START_TS, START_TS + 3 * STEP_US, limit=10)
    assert seqs(between.items) == [3, 1]


async def test_active_omits_deleted_messages(conversation: MessageIndexes, tables: Tables) -> None:
    """The status index lists active messages by time."""
    row = next(
        r
        for r in await tables.scan("messages")
        if (r["chatid"]["S"], r["seq"]["N"]) == ("d-1", "4")
    )
    ts = int(row["ts"]["N"])
    await tables.put_rows(
        row | {"status": {"S": "deleted"}, "status_ts": {"S": f"deleted#{ts:020d}"}}
    )

    found = await list_pages(conversation.list_active, "d-1", limit=4)

    assert [seqs(page) for page in found] == [[7, 6, 5, 3], [2, 1]]


async def test_index_pages_have_complete_messages(conversation: MessageIndexes) -> None:
    """The index has only keys; the items are read from the table."""
    sent = await conversation.list_sent("bob", limit=1)

    assert sent.items == [message(6, sender="bob")]


async def test_stale_index_row_is_omitted(conversation: MessageIndexes, tables: Tables) -> None:
    """An index lags behind its table. Rows without an item are skipped, and the page is full."""
    page = await conversation.list_sent("alice", limit=1)
    stale = {
        "chatid": {"S": "d-1"},
        "ts": {"N": str(START_TS + 99 * STEP_US)},
        "sender_id": {"S": "alice"},
    }
    lagging = {"Items": [stale], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": stale}
    tables.faults.add("Query", reply(lagging))

    again = await conversation.list_sent("alice", limit=1)

    assert again == page


async def test_index_page_with_unprocessed_keys_is_complete(
    conversation: MessageIndexes, tables: Tables, no_backoff: None
) -> None:
    """Unprocessed keys of a BatchGetItem are retried."""

    def none_yet(body: dict[str, Any]) -> Any:
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    tables.faults.add("BatchGetItem", none_yet, none_yet)

    page = await conversation.list_received("alice", limit=10)

    assert seqs(page.items) == [6, 4, 2]


async def test_index_page_with_endlessly_unprocessed_keys_is_unavailable(
    conversation: MessageIndexes, tables: Tables
) -> None:
    """A page is complete or an error, and never short without an error."""
    tables.client.settings = tables.settings.model_copy(update={"call_timeout_s": 0.5})
    queries_with_timeout = MessageIndexes(tables.client, FixedClock(NOW_S))

    def none_yet(body: Any) -> tuple[int, dict[str, Any]]:
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    tables.faults.add("BatchGetItem", *[none_yet] * 5000)

    with pytest.raises(Unavailable, match=r"not read|timed out"):
        await queries_with_timeout.list_received("alice", limit=10)


async def test_page_token_of_another_user_is_refused(conversation: MessageIndexes) -> None:
    """A token cannot be used to read another partition."""
    page = await conversation.list_sent("alice", limit=1)
    assert page.next is not None

    with pytest.raises(BadRequest, match="page token"):
        await conversation.list_sent("bob", limit=1, start=page.next)


async def test_page_of_an_unknown_user_is_empty(conversation: MessageIndexes) -> None:
    """An unknown user is not an error."""
    page = await conversation.list_sent("nobody", limit=10)

    assert page == QueryPage([], None)


# expiry


@pytest.mark.parametrize("query", ["chat", "sent", "active"])
async def test_run_of_expired_items_never_makes_a_page_short(
    queries: MessageIndexes, tables: Tables, repository: Messages, query: str
) -> None:
    """A hundred expired rows between or after live rows are skipped."""
    expired = {*range(3, 103), *range(105, 125)}
    for seq in range(1, 125):
        await tables.put_rows(expiring(seq, EXPIRED_AT if seq in expired else EXPIRES_LATER_AT))
    read: tuple[Any, str] = {
        "chat": (queries.list_chat, "d-1"),
        "sent": (queries.list_sent, "alice"),
        "active": (queries.list_active, "d-1"),
    }[query]

    up = await list_pages(*read, limit=3, newest_first=False)
    down = await list_pages(*read, limit=2)

    assert [seqs(page) for page in up] == [[1, 2, 103], [104]]
    assert [seqs(page) for page in down] == [[104, 103], [2, 1]]


async def test_long_run_of_expired_items_takes_few_queries(
    queries: MessageIndexes, tables: Tables, repository: Messages
) -> None:
    """The limit of each Query grows while no live row is found."""
    for seq in range(1, 301):
        await tables.put_rows(expiring(seq, EXPIRED_AT))
    tables.faults.requests.clear()

    page = await queries.list_chat("d-1", limit=1)

    assert page == QueryPage([], None)
    assert len(tables.faults.bodies("Query")) <= 9


async def test_item_is_omitted_from_the_second_of_its_expiry(
    queries: MessageIndexes, tables: Tables, repository: Messages
) -> None:
    """`expires_at` is the first second in which the message is not returned."""
    await tables.put_rows(expiring(1, NOW_S), expiring(2, NOW_S + 1))

    page = await queries.list_chat("d-1", limit=10)

    assert seqs(page.items) == [2]


async def test_page_is_read_over_several_queries_of_1_mb(
    queries: MessageIndexes, tables: Tables, repository: Messages
) -> None:
    """A Query returns at most 1 MB, so a page of long bodies takes several."""
    large = [message(seq, body="x" * 16_000) for seq in range(1, 101)]
    await repository.put_batch(batch(*large), timeout_s=20)
    tables.faults.requests.clear()

    page = await queries.list_chat("d-1", limit=100)

    assert len(page.items) == 100
    assert page.next is None
    assert len(tables.faults.bodies("Query")) > 1


async def test_row_that_is_not_a_message_raises_corrupt_data(
    queries: MessageIndexes, tables: Tables, repository: Messages
) -> None:
    """Invalid stored data raises an error instead of being omitted."""
    tables.faults.add("Query", reply({"Items": [{"chatid": {"S": "d-1"}, "ts": {"N": "1"}}]}))

    with pytest.raises(CorruptData, match="d-1"):
        await queries.list_chat("d-1", limit=1)


# any page size, range and direction


@pytest.fixture
async def rows(tables: Tables, repository: Messages) -> list[Item]:
    """Items of many kinds in three chats, as returned by a Scan."""
    made: list[Item] = []
    for number in range(120):
        chat, receiver = (("d-1", "bob"), ("g-1", None), ("d-2", "carol"))[number % 3]
        changes: dict[str, Any] = {}
        if number % 5 == 1 or 40 <= number < 60:
            changes["expires_at"] = EXPIRED_AT if number % 2 or number >= 40 else EXPIRES_LATER_AT
        if number % 7 == 2:
            changes |= {"body": "", "deleted": True, "rev": number + 1}
        if number % 11 == 3:
            changes |= {"kind": "edit", "target": 1}
        sender = "bob" if receiver != "bob" and number % 4 == 0 else "alice"
        # Messages of different chats may have the same time.
        ts = START_TS + (number // 4) * STEP_US * 2 + number // 3
        sent = message(number + 1, chat, sender, ts=ts, **changes)
        made.append(encode_item(PersistItem(sent, receiver)))
    for at in range(0, len(made), 25):
        await put_items(tables.client, MESSAGES.name_in(tables.settings), made[at : at + 25])
    return await tables.scan("messages")


def reference(rows: list[Item], **wanted: str) -> list[tuple[int, str]]:
    """Return the sorted (ts, chat) of unexpired rows whose attributes start with these texts."""
    found = []
    for row in rows:
        has_text = all(
            row.get(name, {}).get("S", "").startswith(text) for name, text in wanted.items()
        )
        if has_text and int(row.get("expires_at", {"N": NOW_S + 1})["N"]) > NOW_S:
            found.append((int(row["ts"]["N"]), row["chatid"]["S"]))
    return sorted(found)


TIMES = st.integers(START_TS - 1, START_TS + 62 * STEP_US)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pattern=st.sampled_from(["chat", "sent", "received", "active"]),
    limit=st.integers(1, 50),
    newest_first=st.booleans(),
    ends=st.tuples(TIMES, TIMES).map(sorted),
    is_whole=st.booleans(),
)
async def test_pages_of_any_size_match_the_reference(
    queries: MessageIndexes,
    rows: list[Item],
    pattern: str,
    limit: int,
    newest_first: bool,
    ends: list[int],
    is_whole: bool,
) -> None:
    """All unexpired items of the range are listed once, in order and in full pages."""
    read: Callable[..., Awaitable[QueryPage[Message]]]
    match pattern:
        case "chat":
            read, wanted = queries.list_chat, reference(rows, chatid="d-1")
        case "sent":
            read, wanted = queries.list_sent, reference(rows, sender_id="alice")
        case "received":
            read, wanted = queries.list_received, reference(rows, receiver_id="bob")
        case _:
            read = queries.list_active
            wanted = reference(rows, chatid="d-1", status_ts="active#")
    who = {"sent": "alice", "received": "bob"}.get(pattern, "d-1")
    if is_whole:
        ends = list(EVER)
    wanted = [each for each in wanted if ends[0] <= each[0] <= ends[1]]
    wanted = wanted[::-1] if newest_first else wanted

    found = await list_pages(read, who, *ends, limit=limit, newest_first=newest_first)

    positions = [(each.ts, each.chat) for page in found for each in page]
    # The order of index rows with the same ts is undefined.
    assert sorted(positions) == sorted(wanted)
    assert [ts for ts, _ in positions] == [ts for ts, _ in wanted]
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert len(found) == max(1, -(-len(wanted) // limit))


class OnlyChats:
    """A reader who may see some chats and, of these, the messages with an even seq."""

    def __init__(self, *chats: str) -> None:
        self._chats = chats

    async def select_chats(self, chats: Collection[str]) -> Collection[str]:
        return [chat for chat in chats if chat in self._chats]

    async def filter_messages(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        return [each if each.seq % 2 == 0 else None for each in messages]


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_page_with_hidden_messages_is_full(
    queries: MessageIndexes, rows: list[Item], limit: int
) -> None:
    """Messages that the reader may not see do not shorten a page."""
    view = OnlyChats("g-1", "d-2")

    found = await list_pages(queries.list_sent, "alice", limit=limit, view=view)

    wanted = [
        int(row["seq"]["N"])
        for row in rows
        if row["chatid"]["S"] != "d-1"
        and int(row["seq"]["N"]) % 2 == 0
        and row["sender_id"]["S"] == "alice"
        and int(row.get("expires_at", {"N": NOW_S + 1})["N"]) > NOW_S
    ]
    assert sorted(each.seq for page in found for each in page) == sorted(wanted)
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)


async def test_items_of_invisible_chats_are_not_read(
    queries: MessageIndexes, rows: list[Item], tables: Tables
) -> None:
    """The chat is in the index key, so such items are skipped before they are read."""
    tables.faults.requests.clear()

    await queries.list_sent("alice", limit=100, view=OnlyChats("d-2"))

    keys = [
        key["chatid"]["S"]
        for body in tables.faults.bodies("BatchGetItem")
        for table in body["RequestItems"].values()
        for key in table["Keys"]
    ]
    assert set(keys) == {"d-2"}


async def test_messages_are_read_by_chat_and_ts(
    repository: Messages, queries: MessageIndexes, tables: Tables
) -> None:
    """Missing and expired messages are not in the result."""
    sent = [message(1), message(1, "g-1"), message(2)]
    await repository.put_batch(batch(*sent), timeout_s=20)
    await tables.put_rows(expiring(3, EXPIRED_AT))
    positions = [("d-1", START_TS + n * STEP_US) for n in (1, 2, 3, 4)]

    found = await queries.get_many([*positions, *positions, ("g-1", START_TS + STEP_US)])

    assert sorted(found) == sorted((each.chat, each.ts) for each in sent)
    assert [found[each.chat, each.ts] for each in sent] == sent


async def test_files_are_listed_by_their_index_until_they_are_deleted(
    repository: Messages, tables: Tables
) -> None:
    """The index has only messages with files. A deletion removes the message from it."""
    file = Attachment("01JFILE", "plan.pdf", "application/pdf", 1234)
    await repository.put_batch(
        batch(*(message(seq, attachments=[file] if seq % 2 else []) for seq in range(1, 9))), 20.0
    )
    changes = MessageChanges(tables.client)
    await changes.apply("d-1", message(3).ts, [message(9, kind="delete", body="", target=3)])
    files = MessageIndexes(tables.client, FixedClock(NOW_S))
    tables.faults.requests.clear()

    found = await list_pages(files.list_with_files, "d-1", limit=2)

    assert [seqs(page) for page in found] == [[7, 5], [1]]
    assert {query["IndexName"] for query in tables.faults.bodies("Query")} == {"files"}
    rows = [row for row in await tables.scan("messages") if "files_of" in row]
    assert sorted(int(row["seq"]["N"]) for row in rows) == [1, 5, 7]
