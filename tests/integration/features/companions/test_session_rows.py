"""Sessions with companions in table `chat_session`: rows, races, lists and tenants."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import Conflict, LostRace, NotFound
from chatserver.features.companions.model import CompanionSession, session_chat_id
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.warm.chats.directory import Directory
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.integration.warm.support import Tables

ALICE, ADA, BEN = UserId("alice"), CompanionId(UserId("ai-ada")), CompanionId(UserId("ai-ben"))
NOW_S = 1_795_000_000.0
NOW_MS = 1_795_000_000_000
TASKS, STEPS = 16, 30


def make_session(
    number: int, companion: CompanionId = ADA, user: UserId = ALICE
) -> CompanionSession:
    """Return a session that was created `number` seconds after a fixed time."""
    chat = session_chat_id(user, companion, Ref(f"r{number}"), NOW_S + number)
    return CompanionSession(user, companion, chat, 1, NOW_MS + number * 1000)


async def open_chat(tables: Tables, session: CompanionSession) -> None:
    directory = Directory(tables.client)
    await directory.create_session_chat(session.chat, session.user, session.companion, "Ada", NOW_S)


async def rows_of(tables: Tables) -> dict[tuple[str, str], Item]:
    """Return all rows of the table by their keys."""
    return {(row["PK"]["S"], row["SK"]["S"]): row for row in await tables.scan("chat_session")}


async def begin(tables: Tables, number: int = 1) -> tuple[SessionRows, CompanionSession]:
    """Create an active session with its chat; return the repository and the session."""
    sessions, session = SessionRows(tables.client), make_session(number)
    await sessions.create(session)
    await open_chat(tables, session)
    return sessions, session


async def test_repeated_create_succeeds(tables: Tables) -> None:
    """After a lost response, the retry finds its own row."""
    sessions, session = await begin(tables)

    await sessions.create(session)

    assert await sessions.find_active(ALICE, ADA) == session


async def test_create_with_lost_response_stores_one_row(tables: Tables, no_backoff: None) -> None:
    """The retry of the DynamoDB client finds the row of the first attempt."""
    sessions = SessionRows(tables.client)
    tables.faults.drop_responses("PutItem", 1)

    await sessions.create(make_session(1))

    assert len(await rows_of(tables)) == 1


async def test_get_reads_the_active_row_consistently(tables: Tables) -> None:
    """The read is one GetItem."""
    sessions, session = await begin(tables)
    tables.faults.requests.clear()

    found = await sessions.find_active(ALICE, ADA)

    assert found == session
    ((operation, request),) = tables.faults.requests
    assert operation == "GetItem" and request["ConsistentRead"] is True
    assert request["Key"] == {"PK": {"S": "alice"}, "SK": {"S": "#ACTIVE#ai-ada"}}


async def test_delete_keeps_all_attributes_in_the_old_row(tables: Tables) -> None:
    """The active row is deleted. The old row has its attributes and the end time."""
    sessions, session = await begin(tables)

    await sessions.delete(session, NOW_MS + 9000)

    assert await tables.scan("chat_session") == [
        {
            "PK": {"S": "alice"},
            "SK": {"S": f"ai-ada#OLD#{session.chat}"},
            "GSI1PK": {"S": session.chat},
            "chat_id": {"S": session.chat},
            "ai_version": {"N": "1"},
            "create_time": {"N": str(NOW_MS + 1000)},
            "delete_time": {"N": str(NOW_MS + 9000)},
        }
    ]
    chat = await Directory(tables.client).get_chat(session.chat)
    assert (chat.ended_ms, chat.version) == (NOW_MS + 9000, 2)


async def test_update_version_of_an_ended_session_is_conflict(tables: Tables) -> None:
    """This also holds if the session ended after it was read."""
    sessions, session = await begin(tables)
    await sessions.delete(session, NOW_MS + 9000)

    with pytest.raises(Conflict, match="this session has ended"):
        await sessions.update_version(session, 7)

    (row,) = await tables.scan("chat_session")
    assert row["ai_version"] == {"N": "1"}


@pytest.mark.parametrize("operation", ["delete", "renew"])
async def test_end_with_lost_response_is_applied_once(
    tables: Tables, no_backoff: None, operation: str
) -> None:
    """The retry finds its own old row and succeeds."""
    sessions, session = await begin(tables)
    tables.faults.drop_responses("TransactWriteItems", 1)

    if operation == "delete":
        await sessions.delete(session, NOW_MS + 9000)
    else:
        await sessions.renew(session, make_session(5))

    olds = [key for key in await rows_of(tables) if "#OLD#" in key[1]]
    assert olds == [("alice", f"ai-ada#OLD#{session.chat}")]


async def test_delete_of_a_session_ended_by_another_request_is_conflict(tables: Tables) -> None:
    """The row of the other request keeps its end time."""
    sessions, session = await begin(tables)
    await sessions.delete(session, NOW_MS + 9000)

    with pytest.raises(Conflict):
        await sessions.delete(session, NOW_MS + 9999)

    (row,) = await tables.scan("chat_session")
    assert row["delete_time"] == {"N": str(NOW_MS + 9000)}


async def test_delete_of_a_session_updated_after_the_read_is_conflict(tables: Tables) -> None:
    """Otherwise the old row would have the version before the update."""
    sessions, session = await begin(tables)
    await sessions.update_version(session, 3)

    with pytest.raises(Conflict):
        await sessions.delete(session, NOW_MS + 9000)

    assert ("alice", "#ACTIVE#ai-ada") in await rows_of(tables)


async def test_list_old_has_one_companion_newest_first(tables: Tables) -> None:
    """A companion whose id starts with another companion's id is not included."""
    sessions = SessionRows(tables.client)
    longer = CompanionId(UserId("ai-ada2"))
    for number, companion in ((1, ADA), (2, longer), (3, ADA)):
        session = make_session(number, companion)
        await sessions.create(session)
        await open_chat(tables, session)
        await sessions.delete(session, NOW_MS + 60_000)

    page = await sessions.list_old(ALICE, ADA, limit=10)

    assert [each.chat for each in page.items] == [make_session(3).chat, make_session(1).chat]


class Actor:
    """One of several concurrent tasks that change a session, with its results."""

    def __init__(self, tables: Tables, number: int) -> None:
        self._tables = tables
        self._sessions = SessionRows(tables.client)
        self._random = random.Random(number)
        self._number = number
        self.created: set[ChatId] = set()
        self.ended: set[ChatId] = set()

    async def run(self) -> None:
        for step in range(STEPS):
            await self._step(self._number * 1000 + step)

    async def _step(self, number: int) -> None:
        operation = self._random.choice(["create", "get", "delete", "renew", "version"])
        try:
            if operation == "create":
                session = make_session(number)
                await self._sessions.create(session)
                self.created.add(session.chat)
                await open_chat(self._tables, session)
                return
            active = await self._sessions.find_active(ALICE, ADA)
            if active is None:
                return
            await open_chat(self._tables, active)
            match operation:
                case "delete":
                    old = await self._sessions.delete(active, NOW_MS + number)
                    self.ended.add(old.chat)
                case "renew":
                    following = make_session(number)
                    await self._sessions.renew(active, following)
                    self.created.add(following.chat)
                    self.ended.add(active.chat)
                case "version":
                    found = await self._sessions.find_by_chat(active.chat)
                    if found is not None and found.is_active:
                        await self._sessions.update_version(found, number + 1)
        except (Conflict, NotFound):
            pass


async def count_violations(tables: Tables, stop: asyncio.Event) -> int:
    """Scan until stopped; return how often more than one session was active."""
    violations = 0
    while not stop.is_set():
        active = [key for key in await rows_of(tables) if key[1].startswith("#ACTIVE#")]
        violations += len(active) > 1
        await asyncio.sleep(0)
    return violations


async def test_concurrent_tasks_leave_one_active_session_and_all_old_rows(tables: Tables) -> None:
    """At most one session is active at any time, and each ended session has an old row."""
    actors, stop = [Actor(tables, number) for number in range(TASKS)], asyncio.Event()
    watcher = asyncio.create_task(count_violations(tables, stop))

    await asyncio.gather(*(actor.run() for actor in actors))
    stop.set()

    rows = await rows_of(tables)
    active = {ChatId(row["chat_id"]["S"]) for key, row in rows.items() if "#ACTIVE#" in key[1]}
    old = {ChatId(row["chat_id"]["S"]) for key, row in rows.items() if "#OLD#" in key[1]}
    created = set().union(*(actor.created for actor in actors))
    ended = set().union(*(actor.ended for actor in actors))
    assert await watcher == 0
    assert len(active) <= 1 and ended, "no session was ended"
    assert old == ended
    assert old | active == created and not old & active
    for (_, sort), row in rows.items():
        assert row["GSI1PK"] == row["chat_id"]
        assert sort in ("#ACTIVE#ai-ada", f"ai-ada#OLD#{row['chat_id']['S']}")


async def test_renewals_in_the_same_millisecond_have_one_winner(tables: Tables) -> None:
    """The request whose session was stored can be retried; the other one fails."""
    sessions = SessionRows(tables.client)
    active, theirs = make_session(1), make_session(5)
    ours = dataclasses.replace(
        theirs, chat=session_chat_id(ALICE, ADA, Ref("another request"), NOW_S + 5)
    )
    await sessions.create(active)
    await open_chat(tables, active)

    await sessions.renew(active, theirs)
    await sessions.renew(active, theirs)
    with pytest.raises(LostRace):
        await sessions.renew(active, ours)

    assert await sessions.find_active(ALICE, ADA) == theirs


async def test_tenants_on_the_same_tables_have_separate_sessions(tables: Tables) -> None:
    """Stored keys have a tenant prefix; returned ids do not."""
    chats: list[ChatId] = []
    for tenant in ("acme", "zeta"):
        own = tables.settings.model_copy(update={"tenant": tenant})
        async with open_dynamodb(own) as client:
            there = Tables(client, own, tables.faults)
            sessions, session = SessionRows(client), make_session(1)
            await sessions.create(session)
            await open_chat(there, session)
            following = make_session(5)
            await sessions.renew(session, following)
            await open_chat(there, following)
            found = await sessions.find_by_chat(following.chat)
            assert found == following
            moved = await sessions.update_version(found, 2)
            await sessions.delete(moved, NOW_MS + 9000)
            page = await sessions.list_old(ALICE, ADA, limit=10)
            chats = [each.chat for each in page.items]
            assert chats == [following.chat, session.chat]

    rows = await rows_of(tables)
    assert set(rows) == {
        (f"{tenant}/alice", f"ai-ada#OLD#{chat}") for tenant in ("acme", "zeta") for chat in chats
    }
    for (partition, _), row in rows.items():
        assert row["GSI1PK"]["S"] == f"{partition.partition('/')[0]}/{row['chat_id']['S']}"
