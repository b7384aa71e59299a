"""Cleared chats in the Python SDK: two devices of a user, on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver.client import ChatClient, SqliteStore, events
from chatserver.dev.servers import Server
from chatserver.errors import BadRequest
from tests.integration.client.cache_support import (
    add_user,
    client_of,
    consuming,
    offline_client,
    wait_until_shown,
)
from tests.support.stack import NewName, Stack


async def test_chat_cleared_on_one_device_is_cleared_on_the_other_after_reconnect(
    stack: Stack, api: Server, new_name: NewName, tmp_path: Path
) -> None:
    """Cleared texts are not shown, unread, in pages or in the file; later texts are."""
    path, alice = tmp_path / "phone.db", new_name("alice")
    bob_name = await add_user(stack, new_name("bob"))

    def device(name: str, store: SqliteStore | None = None) -> ChatClient:
        return client_of(stack, alice, store, device=name, api_url=api.endpoint)

    phone = device("phone", SqliteStore(path))
    async with consuming(phone), client_of(stack, bob_name) as bob:
        chat = (await phone.open_direct(bob_name)).id
        for body in ("secret-1", "secret-2"):
            await bob.send(chat, body)
        await wait_until_shown(phone, chat, ["secret-1", "secret-2"])

    laptop = device("laptop")
    received: list[events.Event] = []
    async with client_of(stack, bob_name) as bob, consuming(laptop, received):
        await bob.send(chat, "secret-3")
        with pytest.raises(BadRequest, match="upto"):
            await laptop.clear_chat("g-not-loaded")
        newest = (await laptop.history(chat)).entries[-1].seq
        preferences = await laptop.clear_chat(chat)
        await bob.send(chat, "new")
        await wait_until_shown(laptop, chat, ["new"])
        page = await laptop.history(chat)
        assert ([each.body for each in page.entries], page.has_more) == (["new"], False)
        assert preferences.cleared_upto == newest
        assert events.ChatCleared(chat, newest) in received

    phone = device("phone", SqliteStore(path))
    received.clear()
    async with consuming(phone, received):
        await wait_until_shown(phone, chat, ["new"])
        known = phone.find_chat(chat)
        assert known is not None
        assert (known.cleared_upto, known.unread) == (newest, 1)
        page = await phone.history(chat)
        assert ([each.body for each in page.entries], page.has_more) == (["new"], False)
        assert events.ChatCleared(chat, newest) in received

    async with offline_client(stack, path) as client:
        page = await client.history(chat)
        assert (page.tier, [each.body for each in page.entries]) == ("cache", ["new"])
        assert (await client.history(chat, before=newest + 1)).entries == []
    assert b"secret" not in path.read_bytes()
