"""Restrictions of a user: ended logins, blocks, and the `restricted` flag of the user item."""

from __future__ import annotations

import pytest

from chatserver.domain.access.logins import Login
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.logins import Logins
from chatserver.warm.chats.moderation import Moderation
from chatserver.warm.chats.user_restrictions import Restrictions, UserRestrictions
from tests.integration.warm.support import Faults, Tables

NOW = 1_795_000_000.5
NOW_MS = 1_795_000_000_500
UNTIL = 1_795_003_600


class Rows:
    """The repositories of one test's tables."""

    def __init__(self, tables: Tables) -> None:
        client = tables.client
        self.directory = Directory(client)
        self.logins = Logins(client)
        self.moderation = Moderation(client)
        self.restrictions = UserRestrictions(client, self.moderation)

    async def is_restricted(self, user: str) -> bool:
        return (await self.directory.get_user(user)).is_restricted

    async def add_login(self, user: str, login: str) -> None:
        made = Login(user, login, None, NOW_MS, NOW_MS, "seed", UNTIL)
        assert await self.logins.create_login(made)


@pytest.fixture
async def rows(tables: Tables) -> Rows:
    """Repositories with three users."""
    made = Rows(tables)
    for user in ("alice", "bob", "carol"):
        await made.directory.put_user_if_absent(user, None, NOW)
    return made


async def test_restrictions_are_ended_logins_and_blocks_in_both_directions(rows: Rows) -> None:
    """Valid logins and other items of the user are not restrictions."""
    for login in ("laptop", "phone", "tablet"):
        await rows.add_login("alice", login)
    await rows.logins.end_logins("alice", ["phone", "tablet"], NOW_MS, UNTIL)
    await rows.moderation.put_block("alice", "bob", NOW)
    await rows.moderation.put_block("carol", "alice", NOW)

    found = await rows.restrictions.read("alice")

    assert found == Restrictions(frozenset({"phone", "tablet"}), frozenset({"bob", "carol"}))
    assert await rows.restrictions.read("nobody") == Restrictions()


async def test_first_restriction_sets_the_restricted_flag(rows: Rows) -> None:
    """A block sets it for both users; unblocking does not remove it."""
    await rows.add_login("alice", "phone")
    assert not await rows.is_restricted("alice")

    await rows.logins.end_logins("alice", ["phone"], NOW_MS, UNTIL)
    await rows.moderation.put_block("bob", "carol", NOW)
    await rows.moderation.delete_block("bob", "carol")

    assert [await rows.is_restricted(user) for user in ("alice", "bob", "carol")] == [True] * 3


async def test_block_is_not_written_if_the_flag_cannot_be_set(rows: Rows, tables: Tables) -> None:
    """A block without the flag would not be read after the loss of Redis."""
    faults = Faults(tables.client)
    faults.add("UpdateItem", lambda _: (400, {"__type": "x#ValidationException"}))

    with pytest.raises(Exception, match="ValidationException"):
        await rows.moderation.put_block("alice", "bob", NOW)

    assert await rows.moderation.list_blocks("alice", None, 10) == []


async def test_user_item_without_the_flag_counts_as_restricted(rows: Rows, tables: Tables) -> None:
    """Items of earlier releases do not have the flag."""
    request = {
        "TableName": rows.directory._table.name,
        "Key": {"PK": {"S": "u#alice"}, "SK": {"S": "u#alice"}},
        "UpdateExpression": "REMOVE restricted",
    }
    await tables.client.call("update_item", request)

    assert await rows.is_restricted("alice")
    await rows.moderation.put_block("alice", "bob", NOW)
    assert await rows.is_restricted("alice")
