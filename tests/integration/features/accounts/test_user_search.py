"""User search: which users match a text, with the throughput limits of AWS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, Unavailable
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.search_words import list_search_words
from chatserver.warm.chats.directory_items import User
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users, open_container
from tests.support.servers.processes import eventually, eventually_equal

ANN, BEN, CY = UserId("ann"), UserId("ben"), UserId("cy")


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The container of an API process, with three users."""
    auth = config.Auth(secret="s" * 32, argon2_memory_kib=8)
    async with open_container(redis_url, tables.settings, auth=auth) as made:
        await make_users(made, ANN, BEN, CY)
        yield made


@pytest.fixture
def accounts(container: StorageContainer) -> AccountContainer:
    return container.get(AccountContainer)


async def find(accounts: AccountContainer, text: str, *, viewer: UserId = CY) -> list[str]:
    return [each.user for each in await accounts.user_search.find(viewer, text, 20)]


async def wait_for(accounts: AccountContainer, text: str, *users: str) -> None:
    """Wait until a search finds exactly these users; its reads are eventually consistent."""

    await eventually_equal(lambda: find(accounts, text), list(users), deadline_s=20)


async def test_discoverable_user_is_found_by_the_current_name(
    accounts: AccountContainer,
) -> None:
    """An earlier name, a user who opted out and the searching user are not found."""
    put = accounts.profiles.put
    await put(ANN, {"name": "Åsa Müller"})
    assert await find(accounts, "asa") == []

    await put(ANN, {}, is_discoverable=True)
    await put(BEN, {"name": "Asa Baker"}, is_discoverable=True)
    await wait_for(accounts, "asa", ANN, BEN)
    await wait_for(accounts, "mull ÅSA", ANN)
    await wait_for(accounts, "an", ANN)  # this is the user id
    assert await find(accounts, "asa", viewer=ANN) == [BEN]

    await put(ANN, {"name": "Zoe", "about": "renamed"})
    await wait_for(accounts, "asa", BEN)
    await wait_for(accounts, "zo", ANN)

    await put(BEN, {}, is_discoverable=False)
    await wait_for(accounts, "asa")


async def test_blocked_and_banned_users_are_not_found(
    container: StorageContainer, accounts: AccountContainer
) -> None:
    """A block hides both users from each other."""
    for user in (ANN, BEN):
        await accounts.profiles.put(user, {"name": "Sam"}, is_discoverable=True)
    await wait_for(accounts, "sam", ANN, BEN)

    await container.moderation_rows.put_block(ANN, CY, 1.0)
    await wait_for(accounts, "sam", BEN)
    await container.moderation_rows.delete_block(ANN, CY)
    await container.moderation_rows.put_block(CY, BEN, 1.0)
    await wait_for(accounts, "sam", ANN)
    await accounts.rows.restrict_user(ANN, banned_ms=1)
    await wait_for(accounts, "sam")


async def test_concurrent_renames_leave_the_entries_of_one_name(
    accounts: AccountContainer,
) -> None:
    """Each change is applied completely or refused."""
    await accounts.profiles.put(ANN, {"name": "First"}, is_discoverable=True)

    async def rename(number: int) -> None:
        try:
            await accounts.profiles.put(ANN, {"name": f"name{number} again"})
        except Unavailable:
            return  # too many conflicts; a user would retry

    await asyncio.gather(*(rename(number) for number in range(16)))

    (record,) = await accounts.rows.list_users([ANN])
    assert record.name is not None
    assert record.name != "First"
    assert record.words == list_search_words(ANN, record.name)

    async def is_consistent() -> bool:
        entries = await accounts.search_entries.find(["n"])
        entries += await accounts.search_entries.find(["a"])
        entries += await accounts.search_entries.find(["f"])
        return sorted(entry.word for entry in entries) == sorted(record.words)

    await eventually(is_consistent, 20, "the entries of the current name are the only ones")


async def test_rename_while_discovery_is_enabled_leaves_words_of_the_new_name(
    accounts: AccountContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is renamed after the request that enables discovery has read the old name."""
    put, read = accounts.profiles.put, accounts.rows.find_user
    await put(ANN, {"name": "Old"})

    async def read_before_the_rename(user: str) -> User | None:
        record = await read(user)
        monkeypatch.undo()
        await put(ANN, {"name": "New"})
        return record

    monkeypatch.setattr(accounts.rows, "find_user", read_before_the_rename)
    record = await put(ANN, {}, is_discoverable=True)

    assert (record.name, record.words) == ("New", list_search_words(ANN, "New"))
    await wait_for(accounts, "new", ANN)
    assert await find(accounts, "old") == []


async def test_entries_of_an_erased_user_are_removed_once(accounts: AccountContainer) -> None:
    """An erasure may be repeated; the second time there is nothing to remove."""
    await accounts.profiles.put(ANN, {"name": "Ann Other"}, is_discoverable=True)
    assert await accounts.search_entries.remove(ANN) == 2

    assert await accounts.search_entries.remove(ANN) == 0
    await wait_for(accounts, "other")


async def test_text_without_a_letter_is_refused(accounts: AccountContainer) -> None:
    with pytest.raises(BadRequest, match="q: must contain a letter or digit"):
        await find(accounts, " #?! ")
