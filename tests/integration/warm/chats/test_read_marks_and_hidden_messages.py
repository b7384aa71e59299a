"""Read marks of members: they only advance, and only members have them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.errors import Unavailable
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.directory_items import MEMBER, StoredMember
from chatserver.warm.chats.member_states import MarkUpdate, MemberStates
from chatserver.warm.dynamo.client import ATTEMPTS_MAX
from tests.integration.warm.support import Tables, refuse

NOW = 1_795_000_000.5
MEMBERS = [f"user-{n:03}" for n in range(255)]


@pytest.fixture
async def directory(tables: Tables) -> Directory:
    """A directory with chat d-1 of alice and bob."""
    directory = Directory(tables.client)
    await directory.create_direct("d-1", "alice", "bob", NOW)
    return directory


@pytest.fixture
async def state(tables: Tables, directory: Directory) -> MemberStates:
    """The repository under test; alice has read 5 and received 8 in d-1."""
    state = MemberStates(tables.client, directory)
    await state.put_marks([MarkUpdate("d-1", "alice", 5, 8)])
    return state


async def marks_of(directory: Directory, user: str) -> tuple[int, int]:
    """Return a member's read and received marks in d-1."""
    (member,) = [m for m in await directory.list_members("d-1") if m.user == user]
    return member.read, member.received


@pytest.mark.parametrize(
    ("read", "received", "expected"),
    [
        (6, 9, (6, 9)),
        (5, 8, (5, 8)),
        (4, 7, (5, 8)),
        (0, 9, (5, 9)),
        (6, 0, (6, 8)),
        (7, 7, (7, 8)),
        (2, 12, (5, 12)),
    ],
)
async def test_mark_only_advances(
    state: MemberStates, directory: Directory, read: int, received: int, expected: tuple[int, int]
) -> None:
    """Read and received marks advance independently and never move back."""
    await state.put_marks([("d-1", "alice", read, received)])

    assert await marks_of(directory, "alice") == expected
    assert await marks_of(directory, "bob") == (0, 0)


async def test_concurrent_marks_end_at_the_highest(
    state: MemberStates, directory: Directory
) -> None:
    """The order of concurrent writers does not matter."""
    moves = [MarkUpdate("d-1", "alice", 100 - n, n) for n in range(0, 100, 9)]

    await asyncio.gather(*(state.put_marks([move]) for move in moves))

    assert await marks_of(directory, "alice") == (100, 99)


async def test_marks_of_one_member_in_one_batch_are_one_call(
    state: MemberStates, directory: Directory, tables: Tables
) -> None:
    """Only the highest marks are written."""
    await directory.add_to_chat_list("d-1", "bob")
    tables.faults.requests.clear()

    await state.put_marks([("d-1", "bob", n, 2 * n) for n in range(1, 40)])

    assert await marks_of(directory, "bob") == (39, 78)
    assert len(tables.faults.bodies("UpdateItem")) == 1


async def test_marks_of_many_members_are_all_written(
    state: MemberStates, directory: Directory
) -> None:
    """A batch may have more marks than the number of concurrent calls."""
    await directory.create_group("g-1", "alice", MEMBERS, None, NOW)

    await state.put_marks([("g-1", user, n + 1, n + 2) for n, user in enumerate(MEMBERS)])

    members = {member.user: member for member in await directory.list_members("g-1")}
    assert [members[user].read for user in MEMBERS] == list(range(1, 256))


async def test_mark_of_a_non_member_is_dropped(
    state: MemberStates, directory: Directory, tables: Tables
) -> None:
    """It creates no membership and does not affect other marks of the batch."""
    await state.put_marks([("d-1", "mallory", 3, 3), ("d-1", "bob", 3, 3), ("none", "bob", 1, 1)])

    assert [member.user for member in await directory.list_members("d-1")] == ["alice", "bob"]
    assert await marks_of(directory, "bob") == (3, 3)
    assert not any("mallory" in str(row) for row in await tables.scan("directory"))


async def test_marks_during_an_outage_are_unavailable_and_can_be_retried(
    state: MemberStates, directory: Directory, tables: Tables, no_backoff: None
) -> None:
    """The whole call fails, and a retry writes all marks."""
    wanted = [("d-1", "alice", 20, 20), ("d-1", "bob", 20, 20)]
    failing: Any = refuse("InternalServerError", 500)
    tables.faults.add("UpdateItem", *[failing] * (2 * ATTEMPTS_MAX))

    with pytest.raises(Unavailable, match="InternalServerError"):
        await state.put_marks(wanted)
    await state.put_marks(wanted)

    assert await marks_of(directory, "alice") == (20, 20)
    assert await marks_of(directory, "bob") == (20, 20)


async def test_mark_with_endless_conflicts_is_unavailable(
    state: MemberStates, directory: Directory, tables: Tables
) -> None:
    """The number of retries after conflicts is limited."""
    item = MEMBER.encode(StoredMember("d-1", "alice", "member", read=0, received=10**6))
    moved = {"__type": "x#ConditionalCheckFailedException", "Item": item}

    def conflict(_: dict[str, Any]) -> Any:
        item["received"] = {"N": str(int(item["received"]["N"]) + 1)}
        return 400, moved

    tables.faults.add("UpdateItem", *[conflict] * 50)

    with pytest.raises(Unavailable, match="alice"):
        await state.put_marks([("d-1", "alice", 9, 9)])
