"""Many registrations, logins and token refreshes at once, behind the limits of AWS: no errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import Conflict, RateLimited, Unauthenticated
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.service.logins import Grant
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users, open_container

pytest_plugins = ["tests.integration.warm.fixtures"]

REQUESTS = 128
USERS = [UserId(f"user{number:03d}") for number in range(REQUESTS)]
PASSWORD = "correct horse 7 battery"


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The parts of an API process whose passwords are hashed quickly."""
    auth = config.Auth(secret="s" * 32, argon2_memory_kib=8)
    limits = config.Limits(entries="1000/s burst 10000")
    async with open_container(redis_url, tables.settings, auth=auth, limits=limits) as made:
        yield made


@pytest.fixture
def accounts(container: StorageContainer) -> AccountContainer:
    """The accounts of that process."""
    return container.get(AccountContainer)


async def begin(container: StorageContainer, users: Sequence[UserId]) -> list[Grant]:
    """Create users, and log them in."""
    await make_users(container, *users)
    logins = container.get(AccountContainer).logins
    return list(await asyncio.gather(*(logins.begin(user, None) for user in users)))


async def test_one_refresh_token_is_used_by_many_requests_at_once(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """All windows of a browser, at once: each gets the same next token, and the login lives."""
    (first,) = await begin(container, USERS[:1])

    granted = await asyncio.gather(
        *(accounts.logins.refresh(first.refresh_token) for _ in range(REQUESTS))
    )

    assert {grant.login for grant in granted} == {first.login}
    (newest,) = {grant.refresh_token for grant in granted}
    assert newest != first.refresh_token
    (login,) = await accounts.rows.list_logins(USERS[0])
    assert (login.login, login.generation) == (first.login, 2)
    assert (await accounts.logins.refresh(newest)).login == first.login


async def test_tokens_of_many_users_are_refreshed_at_once(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """After an outage, all devices come back: each gets a token of its own."""
    first = await begin(container, USERS)

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
    """A family of tokens that several windows refresh again and again."""
    (grant,) = await begin(container, USERS[:1])
    rounds, windows = 6, 16

    for _ in range(rounds):
        granted = await asyncio.gather(
            *(accounts.logins.refresh(grant.refresh_token) for _ in range(windows))
        )
        assert len({each.refresh_token for each in granted}) == 1
        grant = granted[0]

    (login,) = await accounts.rows.list_logins(USERS[0])
    assert login.generation == rounds + 1


async def test_refresh_and_logout_at_once_leave_no_token_that_works(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """Whichever request is first, the login has ended, and the tokens of all are refused."""
    (first,) = await begin(container, USERS[:1])

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


async def test_registrations_at_once_give_a_name_to_one_user_only(
    accounts: AccountContainer,
) -> None:
    """A name that many want, and names that one each wants."""

    async def register(name: str, network: int) -> Grant:
        address = f"198.{network}.0.1"  # hashes of one network wait for each other
        return await accounts.accounts.register(name, PASSWORD, None, None, address)

    wanted = await asyncio.gather(
        *(register("star", number) for number in range(16)), return_exceptions=True
    )
    granted = await asyncio.gather(*(register(f"fan-{number}", number) for number in range(32)))

    assert [type(each) for each in wanted].count(Grant) == 1
    # Hashes of one name wait in a queue, which is bounded.
    assert {type(each) for each in wanted} <= {Grant, Conflict, RateLimited}
    assert len({each.user for each in granted}) == 32
    assert len(await accounts.rows.list_logins("star")) == 1
