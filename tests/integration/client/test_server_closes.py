"""The SDK after the gateway closes the connection, with a scripted gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from chatserver.client import ChatClient, events
from chatserver.errors import ChatError, Conflict, Unauthenticated, Unavailable
from chatserver.protocol.error_codes import Close

DEADLINE_S = 60.0
WELCOME = {"type": "welcome", "user": "alice", "epoch": "e1", "seq": 0, "limits": {}, "large": []}


class ScriptedGateway:
    """A gateway that ends each connection with the next of `closes`; later ones stay open."""

    def __init__(self) -> None:
        self.closes: list[Any] = []
        self.hellos: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.url = ""

    def handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse the handshake if the script says so."""
        self.times.append(asyncio.get_running_loop().time())
        if self.closes and self.closes[0] == 503:
            self.closes.pop(0)
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "full")
        return None

    async def handle(self, connection: ServerConnection) -> None:
        """Send `welcome` and `bye`, then close."""
        self.hellos.append(msgspec.json.decode(await connection.recv()))
        close = self.closes.pop(0) if self.closes else None
        if close is None or close[0] not in {Close.UNAUTHENTICATED, Close.OVERLOADED}:
            await connection.send(msgspec.json.encode(WELCOME).decode())
        if close is None:
            await connection.wait_closed()
            return
        code, retry_after_ms = close
        bye = {"type": "bye", "code": code, "reason": "scripted"}
        if retry_after_ms is not None:
            bye["retry_after_ms"] = retry_after_ms
        await connection.send(msgspec.json.encode(bye).decode())
        await connection.close(code, "scripted")


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    made = ScriptedGateway()
    protocols = [Subprotocol("chat.v1")]
    async with serve(
        made.handle, "127.0.0.1", 0, subprotocols=protocols, process_request=made.handshake
    ) as server:
        made.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield made


async def wait_for_events(client: ChatClient, kind: type[events.Event], count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in client.events():
            if isinstance(event, kind):
                found.append(event)
            if len(found) == count:
                break
    return found


async def test_client_reconnects_after_the_time_in_bye(gateway: ScriptedGateway) -> None:
    """A gateway that shuts down sets `retry_after_ms` to spread the reconnects."""
    gateway.closes = [(Close.SHUTDOWN, 800)]

    async with ChatClient(gateway.url, "token") as client:
        await wait_for_events(client, events.Connected, 2)

    first, second = gateway.times
    assert second - first >= 0.8
    assert gateway.hellos[1]["cursor"] == {"epoch": "e1", "seq": 0}
    assert gateway.hellos[1]["device"] == gateway.hellos[0]["device"]


async def test_client_retries_a_handshake_refused_with_503(gateway: ScriptedGateway) -> None:
    """A gateway at its connection limit refuses handshakes temporarily."""
    gateway.closes = [503]

    async with ChatClient(gateway.url, "token") as client:
        assert client.is_online
    assert len(gateway.times) == 2


async def test_client_without_patience_retries_an_overloaded_gateway(
    gateway: ScriptedGateway,
) -> None:
    """With `is_patient=False`, it fails at once only if it cannot connect at all."""
    gateway.closes = [(Close.OVERLOADED, 100)]

    async with ChatClient(gateway.url, "token", is_patient=False) as client:
        assert client.is_online
    assert len(gateway.hellos) == 2

    with pytest.raises(Unavailable, match="cannot connect to a gateway"):
        async with ChatClient("ws://127.0.0.1:9/", "token", is_patient=False, open_s=3600):
            pass


async def test_client_requests_a_new_token_after_the_old_one_expired(
    gateway: ScriptedGateway,
) -> None:
    """The callback returns a new token, and the client reconnects with it."""
    gateway.closes = [(Close.SHUTDOWN, 0), (Close.UNAUTHENTICATED, None)]
    tokens = iter(("first", "second", "third"))

    async def get_token() -> str:
        return next(tokens)

    async with ChatClient(gateway.url, get_token) as client:
        await wait_for_events(client, events.Connected, 2)

    assert [hello["token"] for hello in gateway.hellos] == ["first", "second", "third"]


async def test_client_whose_token_is_refused_ends(gateway: ScriptedGateway) -> None:
    """A fixed token does not become valid later, so the client does not retry."""
    gateway.closes = [(Close.SHUTDOWN, 0), (Close.UNAUTHENTICATED, None)]

    async with ChatClient(gateway.url, "token") as client:
        with pytest.raises(Unauthenticated):
            await wait_for_events(client, events.Connected, 3)
        with pytest.raises(Unauthenticated):
            await client.send("c1", "too late")


async def test_client_does_not_reconnect_after_a_final_close(gateway: ScriptedGateway) -> None:
    """Close codes 3500 to 3999 end the client, and the error has the reason."""
    gateway.closes = [(Close.BANNED, None)]

    async with ChatClient(gateway.url, "token") as client:
        with pytest.raises(ChatError, match="scripted"):
            await wait_for_events(client, events.Connected, 2)
    assert len(gateway.hellos) == 1


async def test_client_that_is_replaced_twice_ends(gateway: ScriptedGateway) -> None:
    """The first close may be caused by its own old connection, the second by another client."""
    gateway.closes = [(Close.REPLACED, None), (Close.REPLACED, None)]

    async with ChatClient(gateway.url, "token", device="d1") as client:
        with pytest.raises(Conflict, match="d1"):
            await wait_for_events(client, events.Connected, 3)
    assert len(gateway.hellos) == 2
