"""Calls the new request over a WebSocket with the Python SDK, in a process of the copy."""

from __future__ import annotations

import asyncio
import sys

from chatserver.requests.bans import (  # type: ignore[import-not-found]  # in the copy
    Bans,
    BansPage,
)

from chatserver.client.client import ChatClient


async def main(url: str, token: str, chat: str) -> None:
    async with ChatClient(url, token, device="d1") as client:
        first = await client.request(Bans(0, chat, limit=1), BansPage)
        second = await client.request(Bans(0, chat, first.next, limit=1), BansPage)
    sys.stdout.write(" ".join(each.user for page in (first, second) for each in page.banned))


asyncio.run(main(*sys.argv[1:]))
