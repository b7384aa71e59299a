"""Membership changes in table `directory`: atomic, ordered, and never based on stale items."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from chatserver.domain.ids import Seq, UserId
from chatserver.domain.membership_periods import FormerMember, Period
from chatserver.domain.membership_rules import Role
from chatserver.errors import NotFound
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.directory_items import StoredChat, StoredMember
from chatserver.warm.chats.member_states import MemberStates
from chatserver.warm.chats.memberships import CHANGED_MAX, Memberships
from tests.integration.warm.support import Tables

NOW = 1_795_000_000.5
CHAT = "g-1"


@pytest.fixture
async def memberships(tables: Tables, directory: Directory) -> Memberships:
    """The repository under test, with a group of alice, bob and carol."""
    await directory.create_group(CHAT, "alice", ["bob", "carol"], "Climbing", NOW)
    tables.faults.requests.clear()
    return Memberships(tables.client)


async def test_commit_writes_members_settings_and_change_at_once(
    memberships: Memberships, directory: Directory, tables: Tables
) -> None:
    """One transaction writes them. The version increases, and the count matches the members."""
    chat, found = await memberships.read(CHAT, ["alice", "nobody"])
    tables.faults.requests.clear()

    written = await memberships.commit(
        chat, "what", {"dave": ("admin", 8)}, {"bob": "admin"}, ["carol"], {"name": "Bouldering"}
    )

    assert [operation for operation, _ in tables.faults.requests] == ["TransactWriteItems"]
    assert found == {"alice": StoredMember(CHAT, "alice", "owner")}
    stored, members = await directory.get_chat_with_members(CHAT)
    assert written == stored
    assert (stored.version, stored.change, stored.count) == (2, "what", 3)
    assert (stored.name, stored.joining, stored.history) == ("Bouldering", "invited", "joined")
    assert members == [
        StoredMember(CHAT, "alice", "owner"),
        StoredMember(CHAT, "bob", "admin"),
        StoredMember(CHAT, "dave", "admin", 8, 7, 7),
    ]


async def test_commit_on_an_older_version_writes_nothing(
    memberships: Memberships, directory: Directory
) -> None:
    """A change based on outdated items has no effect."""
    chat, _ = await memberships.read(CHAT, [])
    assert await memberships.commit(chat, "first", {}, {"bob": "admin"}, [], {})

    assert await memberships.commit(chat, "second", {}, {}, ["bob"], {"history": "all"}) is None

    stored, members = await directory.get_chat_with_members(CHAT)
    assert (stored.version, stored.change, stored.history) == (2, "first", "joined")
    assert members[1] == StoredMember(CHAT, "bob", "admin")


async def test_commit_with_a_lost_response_is_applied_once(
    memberships: Memberships, directory: Directory, tables: Tables
) -> None:
    """The retry detects that the change is already written."""
    chat, _ = await memberships.read(CHAT, [])
    tables.faults.drop_responses("TransactWriteItems", 1)

    written = await memberships.commit(chat, "what", {}, {}, ["bob"], {})

    assert written is not None
    assert len(tables.faults.bodies("TransactWriteItems")) == 2
    assert (await directory.get_chat(CHAT)).version == 2


async def test_concurrent_commits_are_serialized(
    memberships: Memberships, directory: Directory
) -> None:
    """Each version is assigned once, and no change is lost."""

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


async def test_commit_accepts_the_maximum_number_of_members(
    memberships: Memberships, directory: Directory
) -> None:
    """Together with the chat's item they are the largest possible transaction."""
    added = {f"user-{n:03}": ("member", 1) for n in range(CHANGED_MAX)}
    chat, _ = await memberships.read(CHAT, list(added))

    assert await memberships.commit(chat, "what", added, {}, [], {})  # type: ignore[arg-type]  # a plain role

    assert len(await directory.list_members(CHAT)) == CHANGED_MAX + 3


async def test_fix_joined_only_increases_and_ignores_former_members(
    memberships: Memberships, directory: Directory
) -> None:
    """A late call, after the member left and rejoined, must not change the new membership."""
    chat, _ = await memberships.read(CHAT, [])
    await memberships.commit(chat, "what", {"dave": ("member", 8)}, {}, [], {})

    await memberships.record_join_seqs(CHAT, [("dave", 9), ("nobody", 9)])
    await memberships.record_join_seqs(CHAT, [("dave", 5)])

    (dave,) = [each for each in await directory.list_members(CHAT) if each.user == "dave"]
    assert dave.joined == 9
    assert len(await directory.list_members(CHAT)) == 4


@pytest.mark.parametrize(("read", "expected"), [(7, (2, 2)), (9, (9, 9))])
async def test_set_joined_lowers_marks_that_have_not_moved(
    memberships: Memberships, directory: Directory, state: MemberStates, read: int, expected: object
) -> None:
    """Redis lost entries before the join: the entries that get their seqs are unread."""
    chat, _ = await memberships.read(CHAT, [])
    joined = await memberships.commit(chat, "join", {"dave": ("member", 8)}, {}, [], {})
    assert joined is not None
    await state.put_marks([(CHAT, "dave", read, read)])

    assert await memberships.set_joined(CHAT, joined.version, {UserId("dave"): Seq(3)})

    dave = (await directory.list_members(CHAT))[-1]
    assert (dave.user, dave.joined) == ("dave", 3)
    assert (dave.read, dave.received) == expected


async def test_rejoining_member_gets_the_state_of_the_former_membership(
    memberships: Memberships, state: MemberStates
) -> None:
    """They get periods, settings and mute.

    Only the entry that ended a membership may set its end.
    """
    await state.add_hidden(CHAT, "bob", [4, 5])
    former = FormerMember(Period(20, 27), "m2", 25, (Period(3, 9),), (4, 5), 7, 0)
    chat, _ = await memberships.read(CHAT, [])
    chat = await memberships.commit(chat, "1", {}, {}, ["bob"], {}, former={"bob": former})
    assert chat is not None

    await memberships.record_leave_seq(CHAT, "bob", "m1", 99)
    await memberships.record_leave_seq(CHAT, "bob", "m2", 28)
    await memberships.record_leave_seq(CHAT, "nobody", "m2", 28)
    found = await memberships.list_former(CHAT, ["bob", "carol"])
    periods_while_away = await memberships.find_periods(CHAT, "bob")
    again = found["bob"].close(is_confirmed=True, now_s=NOW)
    added: dict[str, tuple[Role, int]] = {"bob": ("member", 40)}
    await memberships.commit(chat, "2", added, {}, [], {}, former={"bob": again})

    assert found == {"bob": dataclasses.replace(former, last=Period(20, 28))}
    periods = (Period(3, 9), Period(20, 28))
    assert (periods_while_away, await memberships.find_periods(CHAT, "bob")) == ((), periods)
    _, members = await memberships.read(CHAT, ["bob"])
    assert members["bob"] == StoredMember(CHAT, "bob", "member", 40, 39, 39, (4, 5), 0, 7, periods)
    assert await memberships.find_spans("bob", [CHAT]) == {CHAT: (40, periods)}


async def test_message_hidden_shortly_before_leaving_stays_hidden(
    memberships: Memberships, state: MemberStates
) -> None:
    """The write may happen before or after the removal of the member."""
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


async def test_clear_change_keeps_a_later_change(memberships: Memberships) -> None:
    """A change is cleared only by the process that applied it to Redis."""
    chat, _ = await memberships.read(CHAT, [])
    second = await memberships.commit(chat, "second", {}, {}, [], {"name": "Two"})
    assert second is not None
    third = await memberships.commit(second, "third", {}, {}, [], {"name": "Three"})
    assert third is not None

    await memberships.clear_change(CHAT, second.version)
    assert (await memberships.get_chat(CHAT)).change == "third"

    await memberships.clear_change(CHAT, third.version)
    assert (await memberships.get_chat(CHAT)).change is None


async def test_list_first_is_bounded_and_sorted_by_id(memberships: Memberships) -> None:
    """It takes one read, whatever the number of members."""
    chat, members = await memberships.list_first(CHAT, 2)

    assert chat == StoredChat(CHAT, "group", "Climbing", 1, int(NOW * 1000))
    assert [member.user for member in members] == ["alice", "bob"]
    with pytest.raises(NotFound):
        await memberships.list_first("g-nowhere", 2)


async def test_list_seniority_returns_the_oldest_member_first(memberships: Memberships) -> None:
    """Members are sorted by the seq at which they joined, then by id."""
    chat, _ = await memberships.read(CHAT, [])
    await memberships.commit(chat, "", {"aaron": ("member", 5)}, {"carol": "admin"}, [], {})

    assert await memberships.list_seniority(CHAT) == [
        ("alice", "owner"),
        ("bob", "member"),
        ("carol", "admin"),
        ("aaron", "member"),
    ]


async def test_find_known_returns_existing_users(
    memberships: Memberships, directory: Directory
) -> None:
    """Only existing users can be invited."""
    await directory.put_user_if_absent("alice", None, NOW)

    assert await memberships.find_known(["alice", "nobody"]) == {"alice"}
    assert await memberships.find_known([]) == set()


async def test_chat_item_without_a_member_count_is_counted(
    memberships: Memberships, tables: Tables
) -> None:
    """Items of earlier releases have no `members` attribute."""
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
