"""Concurrent registrations, logins and token refreshes with the throughput limits of AWS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import Conflict, RateLimited, Unauthenticated
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.service.login_tokens import Grant
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users, open_container

REQUESTS = 128
USERS = [UserId(f"user{number:03d}") for number in range(REQUESTS)]
PASSWORD = "correct horse 7 battery"


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The container of an API process with cheap password hashing."""
    auth = config.Auth(secret="s" * 32, argon2_memory_kib=8)
    limits = config.Limits(entries="1000/s burst 10000")
    async with open_container(redis_url, tables.settings, auth=auth, limits=limits) as made:
        yield made


@pytest.fixture
def accounts(container: StorageContainer) -> AccountContainer:
    return container.get(AccountContainer)


async def log_in(container: StorageContainer, users: Sequence[UserId]) -> list[Grant]:
    await make_users(container, *users)
    logins = container.get(AccountContainer).logins
    return list(await asyncio.gather(*(logins.begin(user, None, created_ms=0) for user in users)))


async def test_refresh_token_used_by_concurrent_requests_gives_one_next_token(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """All windows of a browser refresh at once, and each gets the same next token."""
    (first,) = await log_in(container, USERS[:1])

    granted = await asyncio.gather(
        *(accounts.logins.refresh(first.refresh_token) for _ in range(REQUESTS))
    )

    assert {grant.login for grant in granted} == {first.login}
    (newest,) = {grant.refresh_token for grant in granted}
    assert newest != first.refresh_token
    (login,) = await accounts.rows.list_logins(USERS[0])
    assert (login.login, login.generation) == (first.login, 2)
    assert (await accounts.logins.refresh(newest)).login == first.login


async def test_tokens_of_many_users_are_refreshed_concurrently(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """After an outage all devices reconnect, and each gets its own token."""
    first = await log_in(container, USERS)

    granted = await asyncio.gather(
        *(accounts.logins.refresh(grant.refresh_token) for grant in first)
    )

    assert [(each.user, each.login) for each in granted] == [
        (grant.user, grant.login) for grant in first
    ]
    for user in USERS:
        (login,) = await accounts.rows.list_logins(user)
        assert login.generation == 2


async def test_refreshes_in_rounds_count_each_generation_once(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """Several windows refresh the same token, then the next one, and so on."""
    (grant,) = await log_in(container, USERS[:1])
    rounds, windows = 6, 16

    for _ in range(rounds):
        granted = await asyncio.gather(
            *(accounts.logins.refresh(grant.refresh_token) for _ in range(windows))
        )
        assert len({each.refresh_token for each in granted}) == 1
        grant = granted[0]

    (login,) = await accounts.rows.list_logins(USERS[0])
    assert login.generation == rounds + 1


async def test_refresh_concurrent_with_logout_leaves_no_valid_token(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """Whichever request is first, the login ends and all its tokens are refused."""
    (first,) = await log_in(container, USERS[:1])

    outcomes = await asyncio.gather(
        *(accounts.logins.refresh(first.refresh_token) for _ in range(REQUESTS // 2)),
        container.revocation.end_logins(USERS[0], [first.login], "logged out"),
        *(accounts.logins.refresh(first.refresh_token) for _ in range(REQUESTS // 2)),
        return_exceptions=True,
    )

    tokens = {each.refresh_token for each in outcomes if isinstance(each, Grant)}
    refused = [each for each in outcomes if not isinstance(each, Grant) and each is not None]
    assert all(isinstance(each, Unauthenticated) for each in refused), refused
    for token in {first.refresh_token, *tokens}:
        with pytest.raises(Unauthenticated):
            await accounts.logins.refresh(token)


async def test_concurrent_registrations_give_a_name_to_one_user(
    accounts: AccountContainer,
) -> None:
    """Many requests register one name, and many register different names."""

    async def register(name: str, network: int) -> Grant:
        address = f"198.{network}.0.1"  # hashes for one network run one at a time
        return await accounts.password_logins.register(name, PASSWORD, None, None, address)

    same_name = await asyncio.gather(
        *(register("star", number) for number in range(16)), return_exceptions=True
    )
    granted = await asyncio.gather(*(register(f"fan-{number}", number) for number in range(32)))

    assert [type(each) for each in same_name].count(Grant) == 1
    # Hashes for one name wait in a queue with a maximum length.
    assert {type(each) for each in same_name} <= {Grant, Conflict, RateLimited}
    assert len({each.user for each in granted}) == 32
    assert len(await accounts.rows.list_logins("star")) == 1
