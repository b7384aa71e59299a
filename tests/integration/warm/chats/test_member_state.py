"""Read markers of members on a real server: forward only, bounded, of members alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.errors import Unavailable
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.member_state import Mark, MemberState
from chatserver.warm.chats.records import Member
from chatserver.warm.dynamo.client import ATTEMPTS_MAX
from tests.integration.warm.support import Tables, refuse

pytest_plugins = ["tests.integration.warm.fixtures"]

NOW = 1_795_000_000.5
CROWD = [f"user-{n:03}" for n in range(255)]


@pytest.fixture
async def directory(tables: Tables) -> Directory:
    """Chat d-1 of alice and bob."""
    directory = Directory(tables.client, tables.settings)
    await directory.create_direct("d-1", "alice", "bob", NOW)
    return directory


@pytest.fixture
async def state(tables: Tables, directory: Directory) -> MemberState:
    """The repository under test; alice has read 5 and received 8 in d-1."""
    state = MemberState(tables.client, tables.settings, directory)
    await state.put_marks([Mark("d-1", "alice", 5, 8)])
    return state


async def marks_of(directory: Directory, user: str) -> tuple[int, int]:
    """Return where a member's marks in d-1 stand."""
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
async def test_mark_moves_forward_only(
    state: MemberState, directory: Directory, read: int, received: int, expected: tuple[int, int]
) -> None:
    """Each of the two marks by itself, never back."""
    await state.put_marks([("d-1", "alice", read, received)])

    assert await marks_of(directory, "alice") == expected
    assert await marks_of(directory, "bob") == (0, 0)


async def test_marks_moved_by_many_at_once_end_at_the_furthest(
    state: MemberState, directory: Directory
) -> None:
    """With concurrent writers in any order, the highest mark wins."""
    moves = [Mark("d-1", "alice", 100 - n, n) for n in range(0, 100, 9)]

    await asyncio.gather(*(state.put_marks([move]) for move in moves))

    assert await marks_of(directory, "alice") == (100, 99)


async def test_marks_of_one_member_in_one_batch_are_one_call(
    state: MemberState, directory: Directory, tables: Tables
) -> None:
    """The furthest of each is written."""
    await directory.list_direct("d-1", "bob")
    tables.faults.requests.clear()

    await state.put_marks([("d-1", "bob", n, 2 * n) for n in range(1, 40)])

    assert await marks_of(directory, "bob") == (39, 78)
    assert len(tables.faults.bodies("UpdateItem")) == 1


async def test_marks_of_many_are_all_moved(state: MemberState, directory: Directory) -> None:
    """A flush holds more marks than go out at once."""
    await directory.create_group("g-1", "alice", CROWD, None, NOW)

    await state.put_marks([("g-1", user, n + 1, n + 2) for n, user in enumerate(CROWD)])

    members = {member.user: member for member in await directory.list_members("g-1")}
    assert [members[user].read for user in CROWD] == list(range(1, 256))


async def test_mark_of_one_who_is_no_member_is_dropped(
    state: MemberState, directory: Directory, tables: Tables
) -> None:
    """It makes no membership, and the others' marks move all the same."""
    await state.put_marks([("d-1", "mallory", 3, 3), ("d-1", "bob", 3, 3), ("none", "bob", 1, 1)])

    assert [member.user for member in await directory.list_members("d-1")] == ["alice", "bob"]
    assert await marks_of(directory, "bob") == (3, 3)
    assert not any("mallory" in str(row) for row in await tables.scan("directory"))


async def test_marks_during_a_fault_are_unavailable_and_may_be_repeated(
    state: MemberState, directory: Directory, tables: Tables, no_backoff: None
) -> None:
    """The flush fails as a whole call; doing it again puts all in place."""
    wanted = [("d-1", "alice", 20, 20), ("d-1", "bob", 20, 20)]
    failing: Any = refuse("InternalServerError", 500)
    tables.faults.add("UpdateItem", *[failing] * (2 * ATTEMPTS_MAX))

    with pytest.raises(Unavailable, match="InternalServerError"):
        await state.put_marks(wanted)
    await state.put_marks(wanted)

    assert await marks_of(directory, "alice") == (20, 20)
    assert await marks_of(directory, "bob") == (20, 20)


async def test_mark_that_others_keep_moving_is_unavailable_in_the_end(
    state: MemberState, directory: Directory, tables: Tables
) -> None:
    """Even a fight over one row is bounded."""
    item = Member("d-1", "alice", "member", read=0, received=10**6).encode()
    moved = {"__type": "x#ConditionalCheckFailedException", "Item": item}

    def ahead(_: dict[str, Any]) -> Any:
        item["received"] = {"N": str(int(item["received"]["N"]) + 1)}
        return 400, moved

    tables.faults.add("UpdateItem", *[ahead] * 50)

    with pytest.raises(Unavailable, match="alice"):
        await state.put_marks([("d-1", "alice", 9, 9)])
