"""Clients and settings for tests of rate limits."""

from __future__ import annotations

import time
from typing import Any

from chatserver.dev.servers import Server
from tests.support.received_frames import Fields
from tests.support.stack import Stack
from tests.support.wire import RawSocket

BURST, RATE = 20, 8.0
STRICT = {
    "CHAT_LIMITS_SENDS": f"{RATE}/s burst {BURST}",
    "CHAT_LIMITS_REQUESTS": "4/s burst 64",
    "CHAT_LIMITS_MEMORY": "1/s burst 300000",
    "CHAT_LIMITS_CONNECTIONS": "0.5/s burst 5",
    "CHAT_LIMITS_FAILURES": "0.2/s burst 3",
    "CHAT_GATEWAY_TRUSTED_PROXIES": '["127.0.0.1"]',
    "CHAT_GATEWAY_SESSIONS_PER_USER_MAX": "3",
}
ADDRESSES = (f"203.0.113.{n}" for n in range(1, 255))


async def connect(port: int, address: str) -> RawSocket:
    """Connect like a proxy on behalf of a client address."""
    return await RawSocket.open(port, more=[("X-Forwarded-For", f"6.6.6.6, {address}")])


class Sender:
    """A user who sends many frames on a raw socket without waiting for responses."""

    def __init__(self, stack: Stack, user: str, device: str) -> None:
        self.stack, self.user, self.device = stack, user, device
        self.ws: Any = None
        self.refs: dict[int, str] = {}  # refs of the last call, by number

    async def start(
        self, server: Server, address: str | None = None, token: str | None = None
    ) -> None:
        """Connect, send hello and wait for `welcome`."""
        self.ws = await connect(server.port, address or next(ADDRESSES))
        hello = {"type": "hello", "v": 1, "token": token or self.stack.token(self.user)}
        await self.ws.send_json({**hello, "device": self.device})
        assert (await self.ws.recv_json())["type"] == "welcome"

    async def send_many(self, count: int, **fields: Any) -> list[Fields]:
        """Send frames without waiting; return their responses by number."""
        for number in range(count):
            frame = {"id": number, **fields}
            if fields["type"] == "send":
                ref = f"{self.device}-{time.monotonic_ns()}"
                frame = {"ref": ref, "body": f"{number}", **frame}
                self.refs[number] = frame["ref"]
            await self.ws.send_json(frame)
        answers: dict[int, Fields] = {}
        while len(answers) < count:
            frame = await self.ws.recv_json()
            if frame["type"] in ("ack", "error", "page"):
                answers[frame["id"]] = frame
        return [answers[number] for number in range(count)]

    async def send_until_refused(self, count: int, **fields: Any) -> list[Fields]:
        """Repeat until some are refused, because on a slow machine the bucket refills meanwhile."""
        answers: list[Fields] = []
        while not any(answer["type"] == "error" for answer in answers):
            answers += await self.send_many(count, **fields)
        return answers
