"""Pinned messages in the Python SDK, on real servers."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.client import ChatClient, events
from chatserver.dev.servers import Server
from chatserver.errors import BadRequest, NotFound
from tests.support.rawchat import RawChat
from tests.support.stack import Stack


async def test_client_pins_messages_and_gets_events(
    stack: Stack, api: Server, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Each event arrives once and in order."""
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(alice.user), api_url=api.endpoint) as client:
        first = (await client.send(pair, "one")).seq
        second = (await client.send(pair, "two")).seq
        await client.pin(pair, first, ref="p1")
        await client.pin(pair, first, ref="p1")
        await client.pin(pair, second)
        page = await client.pins(pair, limit=1)
        rest = await client.pins(pair, after=page.next)
        await client.unpin(pair, first)
        with pytest.raises(NotFound):
            await client.pin(pair, 99)

        changes = []
        async with asyncio.timeout(20):
            async for event in client.events():
                if isinstance(event, events.PinsChanged):
                    changes.append((event.change.kind, event.change.target))
                if len(changes) == 3:
                    break

    assert [each.message.body for each in page.pins + rest.pins] == ["two", "one"]
    assert page.pins[0].pinned_at > 0 and rest.next is None
    assert changes == [("pin", first), ("pin", second), ("unpin", first)]


async def test_pins_without_api_url_raise_an_error(stack: Stack, alice: RawChat) -> None:
    """The error names the missing argument."""
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(alice.user)) as client:
        with pytest.raises(BadRequest, match="api_url"):
            await client.pins("c")
