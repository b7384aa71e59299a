"""SDK clients with a message cache, and a client process that a test can kill."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from chatserver.client import ChatClient, SqliteStore, Store, events
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

DEADLINE_S = 60.0
_PROGRAM = """
import asyncio, sys
from chatserver.client import ChatClient, SqliteStore, events

async def main(url, token, path):
    async with ChatClient(url, token, store=SqliteStore(path)) as client:
        print("ready", flush=True)
        async for event in client.events():
            if isinstance(event, events.MessageAdded):
                print(event.message.body, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def add_user(stack: Stack, name: str) -> str:
    await stack.add_users([name])
    return name


def url_of(stack: Stack) -> str:
    return f"ws://127.0.0.1:{stack.port}/"


def client_of(stack: Stack, user: str, store: Store | None = None, **more: Any) -> ChatClient:
    """Return a client of a user; it is not open yet."""

    async def get_token() -> str:
        return stack.token(user)

    return ChatClient(url_of(stack), get_token, store=store, open_s=DEADLINE_S, **more)


def offline_client(stack: Stack, path: Path) -> ChatClient:
    """Return a client with the stack's cache and a gateway URL that does not respond."""

    async def get_token() -> str:
        return "not sent"

    store = SqliteStore(path, server=f"127.0.0.1:{stack.port}")
    return ChatClient("ws://127.0.0.1:9/", get_token, store=store, is_offline_first=True)


async def start_process(stack: Stack, user: str, path: Path) -> asyncio.subprocess.Process:
    """Start a client process that prints every message, and wait until it is connected."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, url_of(stack), stack.token(user), str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert await read_line(process) == "ready"
    return process


async def read_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
    return line.decode().rstrip("\n")


@contextlib.asynccontextmanager
async def consuming(
    client: ChatClient, received: list[events.Event] | None = None
) -> AsyncIterator[ChatClient]:
    """Open a client whose events are consumed, and added to `received`, in the background."""

    async def consume() -> None:
        async for event in client.events():
            if received is not None:
                received.append(event)

    async with client:
        reading = asyncio.create_task(consume())
        try:
            yield client
            await eventually(lambda: not client._events, DEADLINE_S, "all events are consumed")
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def read_all(client: ChatClient, chat: str) -> list[str]:
    """Read the history of a chat back to its first message; return the bodies."""
    bodies: list[str] = []
    before: int | None = None
    while True:
        page = await client.history(chat, before=before, limit=20)
        bodies = [e.body for e in page.entries if e.target is None] + bodies
        if not page.has_more:
            return bodies
        before = page.entries[0].seq


async def wait_until_shown(client: ChatClient, chat: str, bodies: list[str]) -> None:
    """Wait until the client shows these messages."""
    await eventually(
        lambda: [message.body for message in client.messages(chat)] == bodies,
        DEADLINE_S,
        f"{bodies} are shown",
    )
