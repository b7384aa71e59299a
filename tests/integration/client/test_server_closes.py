"""Reactions of the SDK to a close by the gateway, with a scripted gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import Request, Response, ServerConnection, serve
from websockets.typing import Subprotocol

from chatserver.client import ChatClient, events
from chatserver.errors import ChatError, Conflict, Unauthenticated, Unavailable
from chatserver.protocol.codes import Close

DEADLINE_S = 60.0
WELCOME = {"type": "welcome", "user": "alice", "epoch": "e1", "seq": 0, "limits": {}, "large": []}


class Script:
    """A gateway that handles each connection with the next of `acts`, and then stays open."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self.hellos: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.url = ""

    def greet(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse the handshake if the script requires it."""
        self.times.append(asyncio.get_running_loop().time())
        if self.acts and self.acts[0] == 503:
            self.acts.pop(0)
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "full")
        return None

    async def talk(self, connection: ServerConnection) -> None:
        """Send `welcome` and `bye`, then close."""
        self.hellos.append(msgspec.json.decode(await connection.recv()))
        act = self.acts.pop(0) if self.acts else None
        if act is None or act[0] not in {Close.UNAUTHENTICATED, Close.OVERLOADED}:
            await connection.send(msgspec.json.encode(WELCOME).decode())
        if act is None:
            await connection.wait_closed()
            return
        code, advice_ms = act
        bye = {"type": "bye", "code": code, "reason": "as the script says"}
        if advice_ms is not None:
            bye["retry_after_ms"] = advice_ms
        await connection.send(msgspec.json.encode(bye).decode())
        await connection.close(code, "as the script says")


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    """A scripted gateway that listens."""
    made = Script()
    protocols = [Subprotocol("chat.v1")]
    async with serve(
        made.talk, "127.0.0.1", 0, subprotocols=protocols, process_request=made.greet
    ) as server:
        made.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield made


async def hear_until(client: ChatClient, kind: type[events.Event], count: int) -> list[Any]:
    """Return the first events of a kind."""
    heard: list[Any] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in client.events():
            if isinstance(event, kind):
                heard.append(event)
            if len(heard) == count:
                break
    return heard


async def test_client_comes_back_when_the_gateway_said(script: Script) -> None:
    """A restarting gateway spreads its clients by `retry_after_ms`."""
    script.acts = [(Close.SHUTDOWN, 800)]

    async with ChatClient(script.url, "token") as client:
        await hear_until(client, events.Connected, 2)

    first, second = script.times
    assert second - first >= 0.8
    assert script.hellos[1]["cursor"] == {"epoch": "e1", "seq": 0}
    assert script.hellos[1]["device"] == script.hellos[0]["device"]


async def test_client_comes_back_to_a_gateway_that_was_full(script: Script) -> None:
    """A 503 in the handshake is for now."""
    script.acts = [503]

    async with ChatClient(script.url, "token") as client:
        assert client.is_online
    assert len(script.times) == 2


async def test_client_without_patience_comes_back_to_a_gateway_that_cannot_serve_yet(
    script: Script,
) -> None:
    """It gives up at once only where there is none: a tier may be held up for a moment."""
    script.acts = [(Close.OVERLOADED, 100)]

    async with ChatClient(script.url, "token", is_patient=False) as client:
        assert client.is_online
    assert len(script.hellos) == 2

    with pytest.raises(Unavailable, match="cannot connect to a gateway"):
        async with ChatClient("ws://127.0.0.1:9/", "token", is_patient=False, open_s=3600):
            pass


async def test_client_gets_a_new_token_when_the_old_one_ends(script: Script) -> None:
    """A token that held is renewed by the callback, and the connection goes on."""
    script.acts = [(Close.SHUTDOWN, 0), (Close.UNAUTHENTICATED, None)]
    tokens = iter(("first", "second", "third"))

    async def get_token() -> str:
        return next(tokens)

    async with ChatClient(script.url, get_token) as client:
        await hear_until(client, events.Connected, 2)

    assert [hello["token"] for hello in script.hellos] == ["first", "second", "third"]


async def test_client_whose_token_is_refused_ends(script: Script) -> None:
    """A fixed token does not become valid by retrying."""
    script.acts = [(Close.SHUTDOWN, 0), (Close.UNAUTHENTICATED, None)]

    async with ChatClient(script.url, "token") as client:
        with pytest.raises(Unauthenticated):
            await hear_until(client, events.Connected, 3)
        with pytest.raises(Unauthenticated):
            await client.send("c1", "too late")


async def test_client_that_is_told_not_to_come_back_does_not(script: Script) -> None:
    """3500 to 3999 end it, and the error has the reason."""
    script.acts = [(Close.BANNED, None)]

    async with ChatClient(script.url, "token") as client:
        with pytest.raises(ChatError, match="as the script says"):
            await hear_until(client, events.Connected, 2)
    assert len(script.hellos) == 1


async def test_client_that_is_replaced_twice_ends(script: Script) -> None:
    """Once may be our own old connection; twice is somebody else."""
    script.acts = [(Close.REPLACED, None), (Close.REPLACED, None)]

    async with ChatClient(script.url, "token", device="d1") as client:
        with pytest.raises(Conflict, match="d1"):
            await hear_until(client, events.Connected, 3)
    assert len(script.hellos) == 2
