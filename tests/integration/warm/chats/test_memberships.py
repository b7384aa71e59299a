"""Changes of membership in table `directory`: whole, in order, never decided on stale rows."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from chatserver.domain.membership import Role
from chatserver.domain.membership_periods import FormerMember, Period
from chatserver.errors import NotFound
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.member_state import MemberState
from chatserver.warm.chats.memberships import CHANGED_MAX, Memberships
from chatserver.warm.chats.records import Chat, Member
from tests.integration.warm.support import Tables

pytest_plugins = ["tests.integration.warm.fixtures"]

NOW = 1_795_000_000.5
CHAT = "g-1"


@pytest.fixture
def directory(tables: Tables) -> Directory:
    """The directory beside it."""
    return Directory(tables.client, tables.settings)


@pytest.fixture
def state(tables: Tables, directory: Directory) -> MemberState:
    """Messages that members have hidden."""
    return MemberState(tables.client, tables.settings, directory)


@pytest.fixture
async def memberships(tables: Tables, directory: Directory) -> Memberships:
    """The repository under test, and a group of alice, bob and carol."""
    await directory.create_group(CHAT, "alice", ["bob", "carol"], "Climbing", NOW)
    tables.faults.requests.clear()
    return Memberships(tables.client, tables.settings)


async def test_commit_writes_members_settings_and_change_at_once(
    memberships: Memberships, directory: Directory, tables: Tables
) -> None:
    """One transaction; the version rises, the count is that of the rows."""
    chat, found = await memberships.read(CHAT, ["alice", "nobody"])
    tables.faults.requests.clear()

    written = await memberships.commit(
        chat, "what", {"dave": ("admin", 8)}, {"bob": "admin"}, ["carol"], {"name": "Bouldering"}
    )

    assert [operation for operation, _ in tables.faults.requests] == ["TransactWriteItems"]
    assert found == {"alice": Member(CHAT, "alice", "owner")}
    stored, members = await directory.get_chat_with_members(CHAT)
    assert written == stored
    assert (stored.version, stored.change, stored.count) == (2, "what", 3)
    assert (stored.name, stored.joining, stored.history) == ("Bouldering", "invited", "joined")
    assert members == [
        Member(CHAT, "alice", "owner"),
        Member(CHAT, "bob", "admin"),
        Member(CHAT, "dave", "admin", 8, 7, 7),
    ]


async def test_commit_on_an_older_version_writes_nothing(
    memberships: Memberships, directory: Directory
) -> None:
    """A decision on outdated items has no effect."""
    chat, _ = await memberships.read(CHAT, [])
    assert await memberships.commit(chat, "first", {}, {"bob": "admin"}, [], {})

    assert await memberships.commit(chat, "second", {}, {}, ["bob"], {"history": "all"}) is None

    stored, members = await directory.get_chat_with_members(CHAT)
    assert (stored.version, stored.change, stored.history) == (2, "first", "joined")
    assert members[1] == Member(CHAT, "bob", "admin")


async def test_commit_whose_answer_is_lost_is_done_once(
    memberships: Memberships, directory: Directory, tables: Tables
) -> None:
    """The second try finds its own work."""
    chat, _ = await memberships.read(CHAT, [])
    tables.faults.lose_answers("TransactWriteItems", 1)

    written = await memberships.commit(chat, "what", {}, {}, ["bob"], {})

    assert written is not None
    assert len(tables.faults.bodies("TransactWriteItems")) == 2
    assert (await directory.get_chat(CHAT)).version == 2


async def test_commits_of_eight_at_once_are_one_after_the_other(
    memberships: Memberships, directory: Directory
) -> None:
    """Each version is given once, and no change is lost."""

    async def add(user: str) -> int:
        while True:
            chat, _ = await memberships.read(CHAT, [user])
            written = await memberships.commit(chat, user, {user: ("member", 1)}, {}, [], {})
            if written is not None:
                return written.version

    versions = await asyncio.gather(*(add(f"user-{n}") for n in range(8)))

    assert sorted(versions) == list(range(2, 10))
    chat, members = await directory.get_chat_with_members(CHAT)
    assert (chat.version, chat.count, len(members)) == (9, 11, 11)


async def test_commit_takes_as_many_members_as_a_request_may_name(
    memberships: Memberships, directory: Directory
) -> None:
    """They and the chat's row are one transaction, the largest there is."""
    crowd = {f"user-{n:03}": ("member", 1) for n in range(CHANGED_MAX)}
    chat, _ = await memberships.read(CHAT, list(crowd))

    assert await memberships.commit(chat, "what", crowd, {}, [], {})  # type: ignore[arg-type]  # a plain role

    assert len(await directory.list_members(CHAT)) == CHANGED_MAX + 3


async def test_fix_joined_only_rises_and_passes_over_who_left(
    memberships: Memberships, directory: Directory
) -> None:
    """A fix that comes late, after one left and came again, does not hide what is theirs."""
    chat, _ = await memberships.read(CHAT, [])
    await memberships.commit(chat, "what", {"dave": ("member", 8)}, {}, [], {})

    await memberships.fix_joined(CHAT, [("dave", 9), ("nobody", 9)])
    await memberships.fix_joined(CHAT, [("dave", 5)])

    (dave,) = [each for each in await directory.list_members(CHAT) if each.user == "dave"]
    assert dave.joined == 9
    assert len(await directory.list_members(CHAT)) == 4


async def test_what_is_kept_of_one_who_left_is_their_row_again(
    memberships: Memberships, state: MemberState
) -> None:
    """Periods, own settings and a mute; the end is fixed by the entry that ended it alone."""
    await state.add_hidden(CHAT, "bob", [4, 5])
    former = FormerMember(Period(20, 27), "m2", 25, (Period(3, 9),), (4, 5), 7, 0)
    chat, _ = await memberships.read(CHAT, [])
    chat = await memberships.commit(chat, "1", {}, {}, ["bob"], {}, former={"bob": former})
    assert chat is not None

    await memberships.fix_left(CHAT, "bob", "m1", 99)
    await memberships.fix_left(CHAT, "bob", "m2", 28)
    await memberships.fix_left(CHAT, "nobody", "m2", 28)
    found = await memberships.list_former(CHAT, ["bob", "carol"])
    gone = await memberships.find_periods(CHAT, "bob")
    again = found["bob"].close(is_confirmed=True, now_s=NOW)
    added: dict[str, tuple[Role, int]] = {"bob": ("member", 40)}
    await memberships.commit(chat, "2", added, {}, [], {}, former={"bob": again})

    assert found == {"bob": dataclasses.replace(former, last=Period(20, 28))}
    periods = (Period(3, 9), Period(20, 28))
    assert (gone, await memberships.find_periods(CHAT, "bob")) == ((), periods)
    _, members = await memberships.read(CHAT, ["bob"])
    assert members["bob"] == Member(CHAT, "bob", "member", 40, 39, 39, (4, 5), 0, 7, periods)
    assert await memberships.find_spans("bob", [CHAT]) == {CHAT: (40, periods)}


async def test_message_hidden_just_before_one_left_stays_hidden(
    memberships: Memberships, state: MemberState
) -> None:
    """Its write comes before the member is removed, and after."""
    former = FormerMember(Period(1, 9), "m1", 9)
    chat, _ = await memberships.read(CHAT, [])
    await state.add_hidden(CHAT, "bob", [4])
    outdated = await memberships.commit(chat, "1", {}, {}, ["bob"], {}, former={"bob": former})
    former = dataclasses.replace(former, hidden=(4,))
    await memberships.commit(chat, "1", {}, {}, ["bob"], {}, former={"bob": former})
    await state.add_hidden(CHAT, "bob", [5])
    await state.add_hidden(CHAT, "nobody", [5])

    found = await memberships.list_former(CHAT, ["bob", "nobody"])

    assert outdated is None
    assert found == {"bob": dataclasses.replace(former, hidden=(4, 5))}


async def test_clear_change_leaves_a_later_one_alone(memberships: Memberships) -> None:
    """Only who brought the last change to Redis takes it off."""
    chat, _ = await memberships.read(CHAT, [])
    second = await memberships.commit(chat, "second", {}, {}, [], {"name": "Two"})
    assert second is not None
    third = await memberships.commit(second, "third", {}, {}, [], {"name": "Three"})
    assert third is not None

    await memberships.clear_change(CHAT, second.version)
    assert (await memberships.get_chat(CHAT)).change == "third"

    await memberships.clear_change(CHAT, third.version)
    assert (await memberships.get_chat(CHAT)).change is None


async def test_list_first_is_bound_and_lists_by_id(memberships: Memberships) -> None:
    """One read, however many members there are."""
    chat, members = await memberships.list_first(CHAT, 2)

    assert chat == Chat(CHAT, "group", "Climbing", 1, int(NOW * 1000))
    assert [member.user for member in members] == ["alice", "bob"]
    with pytest.raises(NotFound):
        await memberships.list_first("g-nowhere", 2)


async def test_list_seniority_has_the_oldest_first(memberships: Memberships) -> None:
    """By where they joined; founders by id."""
    chat, _ = await memberships.read(CHAT, [])
    await memberships.commit(chat, "", {"aaron": ("member", 5)}, {"carol": "admin"}, [], {})

    assert await memberships.list_seniority(CHAT) == [
        ("alice", "owner"),
        ("bob", "member"),
        ("carol", "admin"),
        ("aaron", "member"),
    ]


async def test_find_known_has_those_with_an_account(
    memberships: Memberships, directory: Directory
) -> None:
    """Only existing users can be invited."""
    await directory.put_user_if_absent("alice", None, NOW)

    assert await memberships.find_known(["alice", "nobody"]) == {"alice"}
    assert await memberships.find_known([]) == set()


async def test_row_of_before_there_were_changes_is_counted(
    memberships: Memberships, tables: Tables
) -> None:
    """A chat that was created without `members` can be changed all the same."""
    await tables.client.call(
        "update_item",
        {
            "TableName": tables.settings.table_prefix + "directory",
            "Key": {"PK": {"S": f"c#{CHAT}"}, "SK": {"S": f"c#{CHAT}"}},
            "UpdateExpression": "REMOVE #members",
            "ExpressionAttributeNames": {"#members": "members"},
        },
    )

    chat, _ = await memberships.read(CHAT, [])

    assert chat.count == 3
    written = await memberships.commit(chat, "what", {}, {}, ["bob"], {})
    assert written is not None
    assert (await memberships.get_chat(CHAT)).count == 2
