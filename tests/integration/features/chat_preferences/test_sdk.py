"""Chat preferences in the Python SDK, on real servers."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.client import ChatClient, events
from chatserver.dev.servers import Server
from chatserver.errors import Conflict
from chatserver.protocol.frames import Draft
from tests.support.rawchat import RawChat
from tests.support.stack import Stack


async def test_client_changes_preferences_and_its_devices_get_signals(
    stack: Stack, api: Server, alice: RawChat, pair: str
) -> None:
    """The signals have the values that the calls returned."""
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(alice.user), api_url=api.endpoint) as client:
        await client.chats()
        draft = {"text": "Hi", "version": 1}
        changed = await client.update_chat_preferences(pair, archived=True, draft=draft)
        page = await client.list_chat_preferences()
        first = await client.set_pinned_chats([pair])
        with pytest.raises(Conflict):
            await client.set_pinned_chats([], if_rev=first.rev - 1)

        signals: dict[str, dict[str, object]] = {}
        async with asyncio.timeout(20):
            async for event in client.events():
                if isinstance(event, events.SignalReceived):
                    signals[event.kind] = event.fields
                if signals.keys() >= {"chat_preferences", "pinned_chats"}:
                    break

    assert (changed.archived, changed.draft) == (True, Draft("Hi", 1))
    assert [each for each in page.preferences if each.chat == pair] == [changed]
    assert field_of(signals, "chat_preferences", "preferences")["rev"] == changed.rev
    assert field_of(signals, "pinned_chats", "pinned") == {"chats": [pair], "rev": first.rev}


def field_of(signals: dict[str, dict[str, object]], kind: str, field: str) -> dict[str, object]:
    found = signals[kind][field]
    assert isinstance(found, dict)
    return found
