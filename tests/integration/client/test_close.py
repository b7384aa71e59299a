"""Events that the Python SDK delivers after it is closed and opened again."""

from __future__ import annotations

import asyncio

from chatserver.client import ChatClient, MemoryStore, events
from tests.integration.client.cache_support import DEADLINE_S, client_of
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack


async def next_entries(client: ChatClient, chat: str, count: int) -> list[str]:
    """Return the next entries of a chat: bodies, and the seqs of changed messages."""
    entries: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in client.events():
            if isinstance(event, events.MessageAdded) and event.chat == chat:
                entries.append(event.message.body)
            if isinstance(event, events.MessageChanged) and event.chat == chat:
                entries.append(f"{event.change.kind} of {event.change.target}")
            if len(entries) == count:
                break
    return entries


async def test_client_closed_with_undelivered_events_delivers_them_next_time(
    stack: Stack, new_name: NewName
) -> None:
    """Delivered events are not repeated; the others are delivered after reopening."""
    store, name = MemoryStore(), new_name("bob")
    async with client_of(stack, new_name("alice")) as alice:
        async with client_of(stack, name, store) as bob:
            chat = (await alice.open_direct(name)).id
            for number in range(6):
                await alice.send(chat, f"text {number}")
            await alice.edit(chat, 2, "text 1, edited")
            await alice.react(chat, 1, "👍")
            await eventually(
                lambda: [each for each in bob.messages(chat) if each.reactions],
                DEADLINE_S,
                "the last change is received",
            )
            assert await next_entries(bob, chat, 3) == ["text 0", "text 1", "text 2"]

        async with client_of(stack, name, store) as bob:
            rest = await next_entries(bob, chat, 5)
            await alice.send(chat, "news")
            assert await next_entries(bob, chat, 1) == ["news"]

    assert rest == ["text 3", "text 4", "text 5", "edit of 2", "reaction of 1"]
