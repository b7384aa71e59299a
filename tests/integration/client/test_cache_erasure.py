"""The message cache of the SDK after another user is erased."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chatserver.client import SqliteStore
from tests.integration.client.cache_support import (
    client_of,
    consuming,
    offline_client,
    read_all,
    wait_until_shown,
)
from tests.integration.features.privacy.support import PASSWORD, Person, Vault, wait_for_erasure

pytest_plugins = ["tests.integration.features.privacy.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_messages_of_a_user_erased_while_the_client_was_offline_are_removed(
    vault: Vault, new_person: Callable[[str], Person], tmp_path: Path
) -> None:
    """After the next connection, no text of the user is in memory or in the file."""
    path, zoe, bob = tmp_path / "bob.db", new_person("zoe"), new_person("bob")
    for person in (zoe, bob):
        await person.register()
    async with consuming(client_of(vault.stack, bob.user, SqliteStore(path))) as client:
        chat = (await client.open_direct(zoe.user)).id
        seq = await zoe.send(chat, "secret")
        await zoe.request("PATCH", f"/v1/chats/{chat}/messages/{seq}", 200, {"body": "secret two"})
        await client.send(chat, "mine")
        await wait_until_shown(client, chat, ["secret two", "mine"])

    receipt = (await zoe.request("DELETE", "/v1/me", 202, {"password": PASSWORD}))["receipt"]
    worker = vault.start_worker("erasures")
    await wait_for_erasure(zoe.client, receipt)
    worker.stop()

    async with consuming(client_of(vault.stack, bob.user, SqliteStore(path))) as client:
        await wait_until_shown(client, chat, ["", "mine"])
    async with offline_client(vault.stack, path) as offline:
        assert await read_all(offline, chat) == ["", "mine"]
    assert b"secret" not in path.read_bytes()
