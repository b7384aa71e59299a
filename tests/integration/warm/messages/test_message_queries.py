"""The access patterns of table `messages`, each on real items."""

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
from chatserver.warm.dynamo.paging import Page
from chatserver.warm.messages.chat_files import ChatFiles
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_queries import EVER, MessageIndexes
from chatserver.warm.messages.store import MessageRepository, PersistItem, encode_item
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

pytest_plugins = ["tests.integration.warm.fixtures"]

NOW_S = START_TS // 1_000_000 + 10_000
GONE, ALIVE = NOW_S - 1, NOW_S + 1


@pytest.fixture
def repository(tables: Tables) -> MessageRepository:
    """The repository that writes the items."""
    return MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))


@pytest.fixture
def patterns(tables: Tables) -> MessageIndexes:
    """The patterns under test; their clock stands still."""
    return MessageIndexes(tables.client, tables.settings, FixedClock(NOW_S))


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
async def talk(repository: MessageRepository, patterns: MessageIndexes) -> MessageIndexes:
    """Seven messages between alice and bob in d-1, three of alice in the group g-1."""
    for seq in range(1, 8):
        sender, receiver = ("alice", "bob") if seq % 2 else ("bob", "alice")
        await repository.put_batch(batch(message(seq, sender=sender), receiver=receiver), 20)
    group = [message(seq, chat="g-1", ts=START_TS + seq * STEP_US + 1) for seq in range(1, 4)]
    await repository.put_batch(batch(*group), 20)
    return patterns


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
async def test_chat_paged_in_either_direction_is_whole(talk: MessageIndexes, limit: int) -> None:
    """Each page is full but the last, nothing comes twice and nothing is left out."""
    down = await pages(talk.list_chat, "d-1", limit=limit)
    up = await pages(talk.list_chat, "d-1", limit=limit, newest_first=False)

    assert seqs([each for page in down for each in page]) == [7, 6, 5, 4, 3, 2, 1]
    assert seqs([each for page in up for each in page]) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(page) for page in down[:-1]] == [limit] * (len(down) - 1)
    assert len(down) == -(-7 // limit)


async def test_chat_between_two_times_includes_both(talk: MessageIndexes) -> None:
    """The range is closed at both ends."""
    found = await pages(
        talk.list_chat, "d-1", START_TS + 3 * STEP_US, START_TS + 5 * STEP_US, limit=2
    )

    assert [seqs(page) for page in found] == [[5, 4], [3]]


async def test_chat_between_times_in_the_wrong_order_is_refused(talk: MessageIndexes) -> None:
    """A range that cannot hold anything is the caller's mistake."""
    with pytest.raises(BadRequest, match="from, to"):
        await talk.list_chat("d-1", 2, 1, limit=1)


async def test_sent_lists_what_a_user_sent_to_any_chat(talk: MessageIndexes) -> None:
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


async def test_sent_between_two_times_is_only_those(talk: MessageIndexes) -> None:
    """The sender's index is sorted by time."""
    page = await talk.list_sent(
        "alice", START_TS + 2 * STEP_US, START_TS + 3 * STEP_US + 1, limit=10, newest_first=False
    )

    assert [(each.chat, each.seq) for each in page.items] == [("g-1", 2), ("d-1", 3), ("g-1", 3)]


async def test_received_lists_direct_messages_to_a_user(talk: MessageIndexes) -> None:
    """Group messages have no receiver: the index is sparse."""
    found = await pages(talk.list_received, "bob", limit=3)

    assert [seqs(page) for page in found] == [[7, 5, 3], [1]]
    between = await talk.list_received("bob", START_TS, START_TS + 3 * STEP_US, limit=10)
    assert seqs(between.items) == [3, 1]


async def test_active_lists_a_chats_messages_but_the_deleted(
    talk: MessageIndexes, tables: Tables
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


async def test_index_pages_carry_whole_messages(talk: MessageIndexes) -> None:
    """The index has keys only; the items come from the table."""
    sent = await talk.list_sent("bob", limit=1)

    assert sent.items == [message(6, sender="bob")]


async def test_index_row_of_an_item_that_changed_since_is_left_out(
    talk: MessageIndexes, tables: Tables
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
    talk: MessageIndexes, tables: Tables, no_backoff: None
) -> None:
    """Keys that DynamoDB did not get to are asked for again."""

    def none_yet(body: dict[str, Any]) -> Any:
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    tables.faults.add("BatchGetItem", none_yet, none_yet)

    page = await talk.list_received("alice", limit=10)

    assert seqs(page.items) == [6, 4, 2]


async def test_index_page_whose_items_never_come_is_unavailable(
    talk: MessageIndexes, tables: Tables
) -> None:
    """A page is whole or an error; never silently short."""
    tables.client._settings = tables.settings.model_copy(update={"call_timeout_s": 0.5})
    impatient = MessageIndexes(tables.client, tables.settings, FixedClock(NOW_S))

    def none_yet(body: Any) -> tuple[int, dict[str, Any]]:
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    tables.faults.add("BatchGetItem", *[none_yet] * 5000)

    with pytest.raises(Unavailable, match=r"not read|timed out"):
        await impatient.list_received("alice", limit=10)


async def test_page_token_of_another_user_is_refused(talk: MessageIndexes) -> None:
    """A token cannot be bent to read another partition."""
    page = await talk.list_sent("alice", limit=1)
    assert page.next is not None

    with pytest.raises(BadRequest, match="page token"):
        await talk.list_sent("bob", limit=1, start=page.next)


async def test_page_of_nobody_is_empty(talk: MessageIndexes) -> None:
    """Nothing there is no error."""
    page = await talk.list_sent("nobody", limit=10)

    assert page == Page([], None)


# expiry


@pytest.mark.parametrize("query", ["chat", "sent", "active"])
async def test_run_of_expired_items_never_makes_a_page_short(
    patterns: MessageIndexes, tables: Tables, repository: MessageRepository, query: str
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
    patterns: MessageIndexes, tables: Tables, repository: MessageRepository
) -> None:
    """The rows looked at in one Query grow while nothing is found."""
    for seq in range(1, 301):
        await tables.put_rows(expiring(seq, GONE))
    tables.faults.requests.clear()

    page = await patterns.list_chat("d-1", limit=1)

    assert page == Page([], None)
    assert len(tables.faults.bodies("Query")) <= 9


async def test_item_at_the_second_of_its_expiry_is_gone(
    patterns: MessageIndexes, tables: Tables, repository: MessageRepository
) -> None:
    """The second that it is given is the first without it."""
    await tables.put_rows(expiring(1, NOW_S), expiring(2, NOW_S + 1))

    page = await patterns.list_chat("d-1", limit=10)

    assert seqs(page.items) == [2]


async def test_page_reads_on_where_dynamodb_cut_it(
    patterns: MessageIndexes, tables: Tables, repository: MessageRepository
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
    patterns: MessageIndexes, tables: Tables, repository: MessageRepository
) -> None:
    """Stored data that breaks the model pages someone instead of vanishing from a page."""
    tables.faults.add("Query", reply({"Items": [{"chatid": {"S": "d-1"}, "ts": {"N": "1"}}]}))

    with pytest.raises(CorruptData, match="d-1"):
        await patterns.list_chat("d-1", limit=1)


# any page size, range and direction


@pytest.fixture
async def rows(tables: Tables, repository: MessageRepository) -> list[Item]:
    """A table of many kinds of items, in three chats, as the database itself has them."""
    made: list[Item] = []
    for number in range(120):
        chat, receiver = (("d-1", "bob"), ("g-1", None), ("d-2", "carol"))[number % 3]
        changes: dict[str, Any] = {}
        if number % 5 == 1 or 40 <= number < 60:
            changes["expires_at"] = GONE if number % 2 or number >= 40 else ALIVE
        if number % 7 == 2:
            changes |= {"body": "", "deleted": True, "rev": number + 1}
        if number % 11 == 3:
            changes |= {"kind": "edit", "target": 1}
        sender = "bob" if receiver != "bob" and number % 4 == 0 else "alice"
        # Times of different chats may be the same.
        ts = START_TS + (number // 4) * STEP_US * 2 + number // 3
        sent = message(number + 1, chat, sender, ts=ts, **changes)
        made.append(encode_item(PersistItem(sent, receiver)))
    for at in range(0, len(made), 25):
        await put_items(tables.client, MESSAGES.name_in(tables.settings), made[at : at + 25])
    return await tables.scan("messages")


def reference(rows: list[Item], **wanted: str) -> list[tuple[int, str]]:
    """The (ts, chat) of rows that have these texts and have not expired, by time."""
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
async def test_pages_of_any_size_are_the_list_in_either_direction(
    patterns: MessageIndexes,
    rows: list[Item],
    pattern: str,
    limit: int,
    newest_first: bool,
    ends: list[int],
    is_whole: bool,
) -> None:
    """All items of the table, each once, in order, in full pages, without expired ones."""
    read: Callable[..., Awaitable[Page[Message]]]
    match pattern:
        case "chat":
            read, wanted = patterns.list_chat, reference(rows, chatid="d-1")
        case "sent":
            read, wanted = patterns.list_sent, reference(rows, sender_id="alice")
        case "received":
            read, wanted = patterns.list_received, reference(rows, receiver_id="bob")
        case _:
            read = patterns.list_active
            wanted = reference(rows, chatid="d-1", status_ts="active#")
    who = {"sent": "alice", "received": "bob"}.get(pattern, "d-1")
    if is_whole:
        ends = list(EVER)
    wanted = [each for each in wanted if ends[0] <= each[0] <= ends[1]]
    wanted = wanted[::-1] if newest_first else wanted

    found = await pages(read, who, *ends, limit=limit, newest_first=newest_first)

    places = [(each.ts, each.chat) for page in found for each in page]
    # Of one time, rows of an index are in no order that is promised.
    assert sorted(places) == sorted(wanted)
    assert [ts for ts, _ in places] == [ts for ts, _ in wanted]
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert len(found) == max(1, -(-len(wanted) // limit))


class OnlyChats:
    """Somebody who sees some chats, and of them what is at even places."""

    def __init__(self, *chats: str) -> None:
        self._chats = chats

    async def choose(self, chats: Collection[str]) -> Collection[str]:
        return [chat for chat in chats if chat in self._chats]

    async def see(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        return [each if each.seq % 2 == 0 else None for each in messages]


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_page_that_somebody_does_not_see_all_of_is_full(
    patterns: MessageIndexes, rows: list[Item], limit: int
) -> None:
    """Messages hidden from the reader make no page short and cost no read of their items."""
    sight = OnlyChats("g-1", "d-2")

    found = await pages(patterns.list_sent, "alice", limit=limit, view=sight)

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


async def test_items_of_chats_that_are_not_chosen_are_not_read(
    patterns: MessageIndexes, rows: list[Item], tables: Tables
) -> None:
    """The keys in the index contain the chat, before anything is fetched."""
    tables.faults.requests.clear()

    await patterns.list_sent("alice", limit=100, view=OnlyChats("d-2"))

    keys = [
        key["chatid"]["S"]
        for body in tables.faults.bodies("BatchGetItem")
        for table in body["RequestItems"].values()
        for key in table["Keys"]
    ]
    assert set(keys) == {"d-2"}


async def test_messages_are_read_by_their_places(
    repository: MessageRepository, patterns: MessageIndexes, tables: Tables
) -> None:
    """A reference holds chat and ts; what is absent or has expired is not in the answer."""
    sent = [message(1), message(1, "g-1"), message(2)]
    await repository.put_batch(batch(*sent), timeout_s=20)
    await tables.put_rows(expiring(3, GONE))
    places = [("d-1", START_TS + n * STEP_US) for n in (1, 2, 3, 4)]

    found = await patterns.get_many([*places, *places, ("g-1", START_TS + STEP_US)])

    assert sorted(found) == sorted((each.chat, each.ts) for each in sent)
    assert [found[each.chat, each.ts] for each in sent] == sent


async def test_files_are_listed_by_their_index_until_they_are_deleted(
    repository: MessageRepository, tables: Tables
) -> None:
    """The index has messages with files only; a deleted one leaves it."""
    file = Attachment("01JFILE", "plan.pdf", "application/pdf", 1234)
    await repository.put_batch(
        batch(*(message(seq, attachments=[file] if seq % 2 else []) for seq in range(1, 9))), 20.0
    )
    changes = MessageChanges(tables.client, tables.settings)
    await changes.apply("d-1", message(3).ts, [message(9, kind="delete", body="", target=3)])
    files = ChatFiles(tables.client, tables.settings, FixedClock(NOW_S))
    tables.faults.requests.clear()

    found = await pages(files.list_with_files, "d-1", limit=2)

    assert [seqs(page) for page in found] == [[7, 5], [1]]
    assert {query["IndexName"] for query in tables.faults.bodies("Query")} == {"files"}
    rows = [row for row in await tables.scan("messages") if "files_of" in row]
    assert sorted(int(row["seq"]["N"]) for row in rows) == [1, 5, 7]
