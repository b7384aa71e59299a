"""Concurrent renewals of companion sessions with the throughput limits of AWS."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import Ref, UserId
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import VersionChanges
from chatserver.features.companions.warm.sessions import ACTIVE_PREFIX
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users
from tests.support.servers.limits import count_refusals

USERS = [UserId(f"u{number:03d}") for number in range(64)]
RENEWALS = 128


@pytest.fixture
async def ada(container: StorageContainer) -> CompanionId:
    fields = VersionChanges(name="Ada", prompt="You are Ada.", provider="scripted", model="echo")
    made = await container.get(CompanionContainer).companions.create("ai-ada", fields)
    return made.id


async def list_sessions(tables: Tables) -> dict[str, tuple[set[str], set[str]]]:
    """Return the chats of the active and the ended sessions of each user."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for row in await tables.scan("chat_session"):
        active, old = found.setdefault(row["PK"]["S"], (set(), set()))
        chats = active if row["SK"]["S"].startswith(ACTIVE_PREFIX) else old
        chats.add(row["chat_id"]["S"])
    return found


async def test_sessions_of_many_users_are_renewed_concurrently(
    container: StorageContainer, tables: Tables, ada: CompanionId
) -> None:
    """Each user renews once. The transactions of different users share no item."""
    await make_users(container, *USERS)
    sessions = container.get(CompanionContainer).sessions
    await asyncio.gather(*(sessions.create(user, ada, Ref("s1")) for user in USERS))

    opened = await asyncio.gather(*(sessions.renew(user, ada, Ref("s2")) for user in USERS))

    stored = await list_sessions(tables)
    for user, each in zip(USERS, opened, strict=True):
        active, old = stored[user]
        assert active == {each.session.chat}
        assert len(old) == 1


async def test_session_renewed_by_concurrent_requests_has_one_winner(
    container: StorageContainer, tables: Tables, ada: CompanionId, dynamodb: str
) -> None:
    """Requests that lose the race return the winner's session."""
    (user, *_) = USERS
    await make_users(container, user)
    sessions = container.get(CompanionContainer).sessions
    first = await sessions.create(user, ada, Ref("s1"))
    before = count_refusals(dynamodb)

    opened = await asyncio.gather(
        *(sessions.renew(user, ada, Ref(f"r{number}")) for number in range(RENEWALS))
    )

    active, old = (await list_sessions(tables))[user]
    assert len(active) == 1 and first.session.chat in old
    assert {each.session.chat for each in opened} <= active | old - {first.session.chat}
    assert (
        count_refusals(dynamodb)["TransactionCanceledException"]
        > (before["TransactionCanceledException"])
    )
    newest = await sessions.get(user, ada)
    assert {newest.session.chat} == active
