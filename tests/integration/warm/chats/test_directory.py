"""Table `directory`: users, chats and memberships."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.errors import BadRequest, Conflict, NotFound
from chatserver.warm.chats.directory import ChatMembership, Directory
from chatserver.warm.chats.directory_items import (
    MEMBER,
    StoredChat,
    StoredMember,
    User,
    encode_chat,
)
from chatserver.warm.chats.member_states import MarkUpdate, MemberStates
from chatserver.warm.dynamo.paging import QueryPage
from tests.integration.warm.support import Faults, Tables, refuse, reply

NOW = 1_795_000_000.5
NOW_MS = 1_795_000_000_500
MEMBERS = [f"user-{n:03}" for n in range(255)]


async def list_chat_pages(directory: Directory, user: str, limit: int = 50) -> list[list[str]]:
    """Return the ids of a user's chats, one list per page."""
    page = await directory.list_memberships(user, limit=limit)
    found = [[each.chat.chat for each in page.items]]
    while page.next is not None:
        page = await directory.list_memberships(user, limit=limit, start=page.next)
        found.append([each.chat.chat for each in page.items])
    return found


async def test_list_all_memberships_returns_all_chats_and_the_newest_sessions(
    directory: Directory, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Query lists both, and all its pages are read."""
    monkeypatch.setattr("chatserver.warm.chats.directory._ROWS_IN_PAGE", 3)
    monkeypatch.setattr("chatserver.warm.chats.directory._ROWS_IN_BATCH", 2)
    for n in range(4):
        await directory.create_group(f"g{n}", "alice", ["bob"], None, NOW)
    sessions = [f"01ARZ3NDEKTSV4RRFFQ69G5FA{n}" for n in range(4)]
    for session in sessions:
        await directory.create_session_chat(session, "alice", "ai-guide", "Guide", NOW)
    faults = Faults(tables.client)

    found = await directory.list_all_memberships("alice", 2)
    queries = len(faults.bodies("Query"))
    everything = await directory.list_all_memberships("alice", 100)

    assert [each.chat.chat for each in found] == ["g3", "g2", "g1", "g0", *sessions[:1:-1]]
    assert queries == 3
    assert len(everything) == 8
    assert all(each.member.user == "alice" for each in everything)


# users


async def test_user_put_is_found(directory: Directory) -> None:
    """A user is an id, a name and a creation time."""
    stored = await directory.put_user_if_absent("alice", "Alice", NOW)

    assert stored == User("alice", "Alice", NOW_MS)
    assert await directory.get_user("alice") == stored


async def test_user_put_twice_is_unchanged(directory: Directory) -> None:
    """The second call returns the first record."""
    first = await directory.put_user_if_absent("alice", "Alice", NOW)

    again = await directory.put_user_if_absent("alice", "Mallory", NOW + 60)

    assert again == first
    assert await directory.get_user("alice") == first


async def test_concurrently_requested_users_are_read_by_one_call(
    directory: Directory, tables: Tables
) -> None:
    """Only users that do not exist need a write."""
    await directory.put_user_if_absent("alice", "Alice", NOW)
    faults = Faults(tables.client)

    users = ["alice", "bob", "carol"]
    found = await asyncio.gather(*(directory.get_or_create_user(user, NOW) for user in users))

    assert [(record.user, record.name, is_new) for record, is_new in found] == [
        ("alice", "Alice", False), ("bob", None, True), ("carol", None, True),
    ]  # fmt: skip
    assert sorted(name for name, _ in faults.requests) == ["BatchGetItem", "PutItem", "PutItem"]


async def test_concurrently_created_user_is_new_for_one_caller(directory: Directory) -> None:
    """The other callers must read the user's items, which may exist already."""
    found = await asyncio.gather(*(directory.get_or_create_user("alice", NOW) for _ in range(5)))

    assert sum(is_new for _, is_new in found) == 1
    assert {record for record, _ in found} == {await directory.get_user("alice")}


async def test_concurrently_put_user_is_created_once(directory: Directory) -> None:
    """Both callers get the same record."""
    one, other = await asyncio.gather(
        directory.put_user_if_absent("alice", "One", NOW),
        directory.put_user_if_absent("alice", "Other", NOW),
    )

    assert one == other == await directory.get_user("alice")


async def test_unknown_user_is_not_found(directory: Directory) -> None:
    """The error names the requested id."""
    with pytest.raises(NotFound, match="nobody"):
        await directory.get_user("nobody")


# chats


async def test_direct_chat_has_two_members_and_is_listed_for_its_opener(
    directory: Directory, tables: Tables
) -> None:
    """One transaction creates it. The other user's list has it after `add_to_chat_list`."""
    tables.faults.requests.clear()

    chat = await directory.create_direct("d-1", "alice", "bob", NOW)

    assert [operation for operation, _ in tables.faults.requests] == ["TransactWriteItems"]
    assert chat == StoredChat("d-1", "direct", None, 1, NOW_MS, users=("alice", "bob"))
    assert await directory.get_chat("d-1") == chat
    members = [StoredMember("d-1", "alice", "member"), StoredMember("d-1", "bob", "member")]
    assert await directory.list_members("d-1") == members
    assert (await directory.list_memberships("bob", limit=10)).items == []
    assert await directory.add_to_chat_list("d-1", "bob")
    assert not await directory.add_to_chat_list("d-1", "mallory")
    for member in members:
        page = await directory.list_memberships(member.user, limit=10)
        assert page == QueryPage([ChatMembership(chat, member)], None)


async def test_direct_chat_opened_concurrently_is_created_once(directory: Directory) -> None:
    """Every caller gets the stored record."""
    chats = await asyncio.gather(
        *(directory.create_direct("d-1", "alice", "bob", NOW + n) for n in range(4)),
        *(directory.create_direct("d-1", "bob", "alice", NOW + n) for n in range(4)),
    )

    assert set(chats) == {await directory.get_chat("d-1")}
    assert len(await directory.list_members("d-1")) == 2


async def test_group_has_its_owner_and_name(directory: Directory) -> None:
    """The creator is the owner, also if listed as a member."""
    await directory.create_group("g-1", "alice", ["bob", "alice", "bob"], "Climbing", NOW)

    chat, members = await directory.get_chat_with_members("g-1")
    assert chat == StoredChat("g-1", "group", "Climbing", 1, NOW_MS)
    assert members == [StoredMember("g-1", "alice", "owner"), StoredMember("g-1", "bob", "member")]


async def test_group_created_again_returns_the_first_record(directory: Directory) -> None:
    """A retry may have another time and another order of members."""
    first = await directory.create_group("g-1", "alice", ["bob", "carol"], "x", NOW)

    again = await directory.create_group("g-1", "alice", ["carol", "bob"], "x", NOW + 60)

    assert again == first


@pytest.mark.parametrize(
    ("creator", "members", "name"),
    [("bob", ["alice"], "x"), ("alice", ["bob", "carol"], "x"), ("alice", ["bob"], "y")],
    ids=["other owner", "other members", "other name"],
)
async def test_group_with_a_used_id_and_other_content_is_a_conflict(
    directory: Directory, creator: str, members: list[str], name: str
) -> None:
    """The refused request changes nothing."""
    await directory.create_group("g-1", "alice", ["bob"], "x", NOW)

    with pytest.raises(Conflict, match="g-1"):
        await directory.create_group("g-1", creator, members, name, NOW)

    assert [m.user for m in await directory.list_members("g-1")] == ["alice", "bob"]
    assert await list_chat_pages(directory, "carol") == [[]]


async def test_direct_chat_with_the_id_of_a_group_is_a_conflict(directory: Directory) -> None:
    """The group is not returned as a direct chat."""
    await directory.create_group("x-1", "alice", ["bob"], None, NOW)

    with pytest.raises(Conflict):
        await directory.create_direct("x-1", "alice", "bob", NOW)


async def test_group_of_256_members_is_created_in_small_transactions(
    directory: Directory, tables: Tables
) -> None:
    """Small transactions block other requests only briefly."""
    tables.faults.requests.clear()

    await directory.create_group("g-1", "alice", MEMBERS, "All", NOW)

    sizes = [len(b["TransactItems"]) for b in tables.faults.bodies("TransactWriteItems")]
    assert sizes == [50, 50, 50, 50, 50, 12]
    members = await directory.list_members("g-1")
    assert [member.user for member in members] == ["alice", *MEMBERS]
    assert await list_chat_pages(directory, MEMBERS[-1]) == [["g-1"]]


async def test_group_of_257_members_is_refused(directory: Directory) -> None:
    """The limit includes the creator."""
    with pytest.raises(BadRequest, match="256"):
        await directory.create_group("g-1", "alice", [*MEMBERS, "one-more"], None, NOW)


@pytest.mark.parametrize("done", [1, 2])
async def test_incompletely_created_group_does_not_exist_until_a_retry(
    directory: Directory, tables: Tables, done: int
) -> None:
    """No reader sees a partial group; a retry of the request completes it."""
    tables.faults.add(
        "TransactWriteItems", *[lambda _: None] * done, refuse("AccessDeniedException")
    )
    with pytest.raises(Exception, match="AccessDenied"):
        await directory.create_group("g-1", "alice", MEMBERS, "All", NOW)

    with pytest.raises(NotFound, match="g-1"):
        await directory.get_chat("g-1")
    with pytest.raises(NotFound, match="g-1"):
        await directory.list_members("g-1")
    assert await list_chat_pages(directory, "alice") == [[]]
    with pytest.raises(Conflict):
        await directory.create_group("g-1", "alice", ["bob"], "All", NOW)

    finished = await directory.create_group("g-1", "alice", MEMBERS, "All", NOW + 60)

    assert finished == await directory.get_chat("g-1")
    assert len(await directory.list_members("g-1")) == 256
    assert await list_chat_pages(directory, "alice") == [["g-1"]]


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_group_with_lost_responses_is_created_once(
    directory: Directory, tables: Tables, no_backoff: None, lost: int
) -> None:
    """The retry detects that the transaction was executed."""
    tables.faults.drop_responses("TransactWriteItems", times=lost)

    chat = await directory.create_group("g-1", "alice", MEMBERS, "All", NOW)

    assert chat == await directory.get_chat("g-1")
    assert len(await directory.list_members("g-1")) == 256


async def test_group_created_concurrently_is_created_once(directory: Directory) -> None:
    """Two devices may retry the same request at the same time."""
    one, other = await asyncio.gather(
        directory.create_group("g-1", "alice", MEMBERS, "All", NOW),
        directory.create_group("g-1", "alice", MEMBERS, "All", NOW + 1),
    )

    assert one == other == await directory.get_chat("g-1")
    assert len(await directory.list_members("g-1")) == 256


async def test_late_retry_changes_neither_marks_nor_members(
    directory: Directory, state: MemberStates, tables: Tables
) -> None:
    """Members are written only until the creation is complete."""
    await directory.create_group("g-1", "alice", ["bob", "carol"], "x", NOW)
    await state.put_marks([MarkUpdate("g-1", "alice", 7, 9)])
    key = {"PK": {"S": "c#g-1"}, "SK": {"S": "m#carol"}}
    table = tables.settings.table_prefix + "directory"
    await tables.client.call("delete_item", {"TableName": table, "Key": key})

    await directory.create_group("g-1", "alice", ["bob", "carol"], "x", NOW)

    assert await directory.list_members("g-1") == [
        StoredMember("g-1", "alice", "owner", read=7, received=9),
        StoredMember("g-1", "bob", "member"),
    ]


async def test_creation_is_retried_after_a_transaction_conflict(
    directory: Directory, tables: Tables, no_backoff: None
) -> None:
    """A transaction conflict is temporary."""
    reasons = [{"Code": "TransactionConflict"}, {"Code": "None"}, {"Code": "None"}]
    conflict = {"__type": "x#TransactionCanceledException", "CancellationReasons": reasons}
    tables.faults.add("TransactWriteItems", lambda _: (400, conflict))

    await directory.create_direct("d-1", "alice", "bob", NOW)

    assert len(await directory.list_members("d-1")) == 2


async def test_unknown_chat_is_not_found(directory: Directory) -> None:
    """The error names the requested id."""
    for read in (directory.get_chat, directory.list_members):
        with pytest.raises(NotFound, match="none"):
            await read("none")


# memberships


async def test_memberships_are_paged_and_have_their_marks(
    directory: Directory, state: MemberStates
) -> None:
    """Each chat of a user is on one page."""
    names = [f"g-{n:02}" for n in range(7)]
    for name in names:
        await directory.create_group(name, "alice", ["bob"], name, NOW)
    await state.put_marks([MarkUpdate("g-03", "alice", 3, 4)])

    assert await list_chat_pages(directory, "alice", limit=3) == [names[:3], names[3:6], names[6:]]
    page = await directory.list_memberships("alice", limit=7)
    assert page.next is None
    assert page.items[3] == ChatMembership(
        StoredChat("g-03", "group", "g-03", 1, NOW_MS),
        StoredMember("g-03", "alice", "owner", read=3, received=4),
    )


async def test_page_of_memberships_is_full_despite_incomplete_chats(
    directory: Directory, tables: Tables
) -> None:
    """Chats whose creation is incomplete are skipped and do not shorten a page."""
    for n in range(12):
        if n % 4:
            tables.faults.add("TransactWriteItems", lambda _: None, refuse("AccessDeniedException"))
            with pytest.raises(Exception, match="AccessDenied"):
                await directory.create_group(f"g-{n:02}", "alice", MEMBERS[:120], None, NOW)
        else:
            await directory.create_group(f"g-{n:02}", "alice", ["bob"], None, NOW)

    assert await list_chat_pages(directory, "alice", limit=2) == [["g-00", "g-04"], ["g-08"]]


async def test_user_with_the_id_prefix_of_another_has_separate_chats(directory: Directory) -> None:
    """Queries compare whole ids, not prefixes."""
    await directory.create_direct("d-1", "ann", "bob", NOW)
    await directory.create_direct("d-2", "anna", "bob", NOW)

    assert await list_chat_pages(directory, "ann") == [["d-1"]]
    assert await list_chat_pages(directory, "anna") == [["d-2"]]
    assert [m.user for m in await directory.list_members("d-1")] == ["ann", "bob"]


async def test_page_token_of_another_users_chats_is_refused(directory: Directory) -> None:
    """A token cannot be used to list the chats of another user."""
    for n in range(2):
        await directory.create_group(f"g-{n}", "alice", ["bob"], None, NOW)
    page = await directory.list_memberships("alice", limit=1)
    assert page.next is not None

    with pytest.raises(BadRequest, match="page token"):
        await directory.list_memberships("bob", limit=1, start=page.next)


async def test_members_are_read_over_several_query_pages(
    directory: Directory, tables: Tables
) -> None:
    """A Query returns at most 1 MB."""
    chat = StoredChat("g-1", "group", None, 1, NOW_MS)
    root, first, second = (
        encode_chat(chat, "ready", "o"),
        MEMBER.encode(StoredMember("g-1", "alice", "owner")),
        MEMBER.encode(StoredMember("g-1", "bob", "member")),
    )
    cut = {"PK": first["PK"], "SK": first["SK"]}
    tables.faults.add(
        "Query",
        reply({"Items": [root, first], "LastEvaluatedKey": cut}),
        reply({"Items": [second]}),
    )

    members = await directory.list_members("g-1")

    assert [member.user for member in members] == ["alice", "bob"]
    assert tables.faults.bodies("Query")[-1]["ExclusiveStartKey"] == cut
