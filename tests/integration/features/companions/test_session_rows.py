"""Sessions with companions in table `chat_session`, as the table itself shows them."""

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
from chatserver.warm.dynamo.client import Item, open_dynamodb
from tests.integration.warm.support import Tables

pytest_plugins = ["tests.integration.warm.fixtures"]

ALICE, ADA, BEN = UserId("alice"), CompanionId(UserId("ai-ada")), CompanionId(UserId("ai-ben"))
NOW_S = 1_795_000_000.0
NOW_MS = 1_795_000_000_000
TASKS, STEPS = 16, 30


def made(number: int, companion: CompanionId = ADA, user: UserId = ALICE) -> CompanionSession:
    """Return the session that begins `number` seconds after the first."""
    chat = session_chat_id(user, companion, Ref(f"r{number}"), NOW_S + number)
    return CompanionSession(user, companion, chat, 1, NOW_MS + number * 1000)


async def open_chat(tables: Tables, session: CompanionSession) -> None:
    """Write the chat of a session, as the service does."""
    directory = Directory(tables.client, tables.settings)
    await directory.create_session_chat(session.chat, session.user, session.companion, "Ada", NOW_S)


async def rows_of(tables: Tables) -> dict[tuple[str, str], Item]:
    """Return all rows of the table by their keys."""
    return {(row["PK"]["S"], row["SK"]["S"]): row for row in await tables.scan("chat_session")}


async def begin(tables: Tables, number: int = 1) -> tuple[SessionRows, CompanionSession]:
    """Return the repository and a session that is active, with its chat."""
    sessions, session = SessionRows(tables.client, tables.settings), made(number)
    await sessions.create(session)
    await open_chat(tables, session)
    return sessions, session


# the five patterns


async def test_create_stores_exactly_the_active_row(tables: Tables) -> None:
    """One item, with the keys and attributes that the pattern names, and no other."""
    _, session = await begin(tables)

    assert await tables.scan("chat_session") == [
        {
            "PK": {"S": "alice"},
            "SK": {"S": "#ACTIVE#ai-ada"},
            "GSI1PK": {"S": session.chat},
            "chat_id": {"S": session.chat},
            "ai_version": {"N": "1"},
            "create_time": {"N": str(NOW_MS + 1000)},
        }
    ]


async def test_second_create_is_conflict_and_names_the_active_chat(tables: Tables) -> None:
    """The error contains the chat of the active session."""
    sessions, session = await begin(tables)

    with pytest.raises(Conflict, match=session.chat):
        await sessions.create(made(2))

    assert [key[1] for key in await rows_of(tables)] == ["#ACTIVE#ai-ada"]


async def test_create_again_with_the_same_chat_is_success(tables: Tables) -> None:
    """An answer that was lost costs nothing: the row that is found is one's own."""
    sessions, session = await begin(tables)

    await sessions.create(session)

    assert await sessions.find_active(ALICE, ADA) == session


async def test_create_whose_answer_is_lost_stores_one_row(tables: Tables, no_backoff: None) -> None:
    """The door's own retry meets the row that its first try wrote."""
    sessions = SessionRows(tables.client, tables.settings)
    tables.faults.lose_answers("PutItem", 1)

    await sessions.create(made(1))

    assert len(await rows_of(tables)) == 1


async def test_get_reads_the_active_row_consistently(tables: Tables) -> None:
    """One GetItem on the key, and a consistent one."""
    sessions, session = await begin(tables)
    tables.faults.requests.clear()

    found = await sessions.find_active(ALICE, ADA)

    assert found == session
    ((operation, request),) = tables.faults.requests
    assert operation == "GetItem" and request["ConsistentRead"] is True
    assert request["Key"] == {"PK": {"S": "alice"}, "SK": {"S": "#ACTIVE#ai-ada"}}


async def test_delete_keeps_all_attributes_in_the_old_row(tables: Tables) -> None:
    """The active row is gone; the old one has its attributes and the end time."""
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
    chat = await Directory(tables.client, tables.settings).get_chat(session.chat)
    assert (chat.ended_ms, chat.version) == (NOW_MS + 9000, 2)


async def test_renew_moves_the_active_row_and_keeps_the_old_one(tables: Tables) -> None:
    """One transaction creates the old row and puts the new chat in the active one."""
    sessions, session = await begin(tables)
    following = made(5)

    await sessions.renew(session, following)

    rows = await rows_of(tables)
    assert set(rows) == {("alice", "#ACTIVE#ai-ada"), ("alice", f"ai-ada#OLD#{session.chat}")}
    assert rows["alice", "#ACTIVE#ai-ada"] == {
        "PK": {"S": "alice"},
        "SK": {"S": "#ACTIVE#ai-ada"},
        "GSI1PK": {"S": following.chat},
        "chat_id": {"S": following.chat},
        "ai_version": {"N": "1"},
        "create_time": {"N": str(NOW_MS + 5000)},
    }
    old = rows["alice", f"ai-ada#OLD#{session.chat}"]
    assert old["GSI1PK"] == old["chat_id"] == {"S": session.chat}
    assert old["delete_time"] == {"N": str(NOW_MS + 5000)}


async def test_update_version_goes_by_the_index_and_changes_one_attribute(tables: Tables) -> None:
    """From the chat alone to the row, and nothing else of it moves."""
    sessions, session = await begin(tables)

    found = await sessions.find_by_chat(session.chat)
    assert found == session
    moved = await sessions.update_version(found, 7)

    rows = await rows_of(tables)
    assert moved.ai_version == 7
    assert rows["alice", "#ACTIVE#ai-ada"] == {
        "PK": {"S": "alice"},
        "SK": {"S": "#ACTIVE#ai-ada"},
        "GSI1PK": {"S": session.chat},
        "chat_id": {"S": session.chat},
        "ai_version": {"N": "7"},
        "create_time": {"N": str(NOW_MS + 1000)},
    }


async def test_update_version_of_a_session_that_is_over_is_conflict(tables: Tables) -> None:
    """A session that ended since it was read is not changed."""
    sessions, session = await begin(tables)
    await sessions.delete(session, NOW_MS + 9000)

    with pytest.raises(Conflict, match="this session has ended"):
        await sessions.update_version(session, 7)

    (row,) = await tables.scan("chat_session")
    assert row["ai_version"] == {"N": "1"}


# races and lost answers


@pytest.mark.parametrize("way", ["delete", "renew"])
async def test_end_whose_answer_is_lost_is_done_once(
    tables: Tables, no_backoff: None, way: str
) -> None:
    """The retry finds its own old row and reports success."""
    sessions, session = await begin(tables)
    tables.faults.lose_answers("TransactWriteItems", 1)

    if way == "delete":
        await sessions.delete(session, NOW_MS + 9000)
    else:
        await sessions.renew(session, made(5))

    olds = [key for key in await rows_of(tables) if "#OLD#" in key[1]]
    assert olds == [("alice", f"ai-ada#OLD#{session.chat}")]


async def test_delete_of_what_another_request_ended_is_conflict(tables: Tables) -> None:
    """The row that somebody else wrote stays as it is, its time included."""
    sessions, session = await begin(tables)
    await sessions.delete(session, NOW_MS + 9000)

    with pytest.raises(Conflict):
        await sessions.delete(session, NOW_MS + 9999)

    (row,) = await tables.scan("chat_session")
    assert row["delete_time"] == {"N": str(NOW_MS + 9000)}


async def test_delete_keeps_the_version_that_was_written_meanwhile(tables: Tables) -> None:
    """The old row has the version that was written after the read."""
    sessions, session = await begin(tables)
    await sessions.update_version(session, 3)

    with pytest.raises(Conflict):
        await sessions.delete(session, NOW_MS + 9000)

    assert ("alice", "#ACTIVE#ai-ada") in await rows_of(tables)


# lists


async def test_list_all_has_active_sessions_first_and_old_ones_by_time(tables: Tables) -> None:
    """The sort key alone gives the order, over pages of one."""
    sessions = SessionRows(tables.client, tables.settings)
    ended = [made(number, companion) for number in (1, 2) for companion in (BEN, ADA)]
    for session in ended:
        await sessions.create(session)
        await open_chat(tables, session)
        await sessions.delete(session, NOW_MS + 60_000)
    active = [made(9, companion) for companion in (BEN, ADA)]
    for session in active:
        await sessions.create(session)

    found: list[CompanionSession] = []
    start = None
    while True:
        page = await sessions.list_all(ALICE, limit=1, start=start)
        found += page.items
        start = page.next
        if start is None:
            break

    shown = [(each.companion, each.is_active, each.chat) for each in found]
    wanted = [(ADA, True, active[1].chat), (BEN, True, active[0].chat)]
    for companion in (ADA, BEN):
        wanted += [(companion, False, made(number, companion).chat) for number in (1, 2)]
    assert shown == wanted


async def test_list_old_is_of_one_companion_and_the_newest_first(tables: Tables) -> None:
    """A companion whose name goes on where another's ends is another one."""
    sessions = SessionRows(tables.client, tables.settings)
    longer = CompanionId(UserId("ai-ada2"))
    for number, companion in ((1, ADA), (2, longer), (3, ADA)):
        session = made(number, companion)
        await sessions.create(session)
        await open_chat(tables, session)
        await sessions.delete(session, NOW_MS + 60_000)

    page = await sessions.list_old(ALICE, ADA, limit=10)

    assert [each.chat for each in page.items] == [made(3).chat, made(1).chat]


# the invariant


class Actor:
    """One of several concurrent users of the same session, with their results."""

    def __init__(self, tables: Tables, number: int) -> None:
        self._tables = tables
        self._sessions = SessionRows(tables.client, tables.settings)
        self._random = random.Random(number)
        self._number = number
        self.began: set[ChatId] = set()
        self.ended: set[ChatId] = set()

    async def run(self) -> None:
        """Do some steps, each one of the five operations."""
        for step in range(STEPS):
            await self._step(self._number * 1000 + step)

    async def _step(self, number: int) -> None:
        way = self._random.choice(["create", "get", "delete", "renew", "version"])
        try:
            if way == "create":
                session = made(number)
                await self._sessions.create(session)
                self.began.add(session.chat)
                await open_chat(self._tables, session)
                return
            active = await self._sessions.find_active(ALICE, ADA)
            if active is None:
                return
            await open_chat(self._tables, active)
            match way:
                case "delete":
                    old = await self._sessions.delete(active, NOW_MS + number)
                    self.ended.add(old.chat)
                case "renew":
                    following = made(number)
                    await self._sessions.renew(active, following)
                    self.began.add(following.chat)
                    self.ended.add(active.chat)
                case "version":
                    found = await self._sessions.find_by_chat(active.chat)
                    if found is not None and found.is_active:
                        await self._sessions.update_version(found, number + 1)
        except (Conflict, NotFound):
            pass


async def watch(tables: Tables, stop: asyncio.Event) -> int:
    """Look all the while; return how often more than one session was active."""
    wrong = 0
    while not stop.is_set():
        active = [key for key in await rows_of(tables) if key[1].startswith("#ACTIVE#")]
        wrong += len(active) > 1
        await asyncio.sleep(0)
    return wrong


async def test_sixteen_tasks_leave_one_active_session_and_lose_no_old_row(tables: Tables) -> None:
    """Property: with 16 tasks at most one session is active, and each ended one has its row."""
    actors, stop = [Actor(tables, number) for number in range(TASKS)], asyncio.Event()
    watcher = asyncio.create_task(watch(tables, stop))

    await asyncio.gather(*(actor.run() for actor in actors))
    stop.set()

    rows = await rows_of(tables)
    active = {ChatId(row["chat_id"]["S"]) for key, row in rows.items() if "#ACTIVE#" in key[1]}
    old = {ChatId(row["chat_id"]["S"]) for key, row in rows.items() if "#OLD#" in key[1]}
    began = set().union(*(actor.began for actor in actors))
    ended = set().union(*(actor.ended for actor in actors))
    assert await watcher == 0
    assert len(active) <= 1 and ended, "nothing was tried"
    assert old == ended
    assert old | active == began and not old & active
    for (_, sort), row in rows.items():
        assert row["GSI1PK"] == row["chat_id"]
        assert sort in ("#ACTIVE#ai-ada", f"ai-ada#OLD#{row['chat_id']['S']}")


async def test_renewals_in_the_same_millisecond_do_not_both_succeed(tables: Tables) -> None:
    """Only the request whose session was stored may return it; a retry of it succeeds."""
    sessions = SessionRows(tables.client, tables.settings)
    active, theirs = made(1), made(5)
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


# tenants


async def test_tenants_on_the_same_tables_have_sessions_of_their_own(tables: Tables) -> None:
    """Each pattern within a tenant: what is stored begins with its name, what is read does not."""
    chats: list[ChatId] = []
    for tenant in ("acme", "zeta"):
        own = tables.settings.model_copy(update={"tenant": tenant})
        async with open_dynamodb(own) as client:
            there = Tables(client, own, tables.faults)
            sessions, session = SessionRows(client, own), made(1)
            await sessions.create(session)
            await open_chat(there, session)
            following = made(5)
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
