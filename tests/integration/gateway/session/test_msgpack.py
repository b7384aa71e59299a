"""chat.v1.msgpack: the same protocol in binary frames, beside devices that speak JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.rawchat import RawChat
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]
PACKED = Subprotocol("chat.v1.msgpack")


class PackedChat:
    """A device that packs."""

    def __init__(self, ws: ClientConnection) -> None:
        self.ws = ws

    async def tell(self, type_: str, **fields: Any) -> None:
        """Send a frame."""
        await self.ws.send(msgspec.msgpack.encode({"type": type_, **fields}))

    async def hear(self, type_: str) -> dict[str, Any]:
        """Return the next frame of a type."""
        while True:
            data = await self.ws.recv()
            assert isinstance(data, bytes), "every frame is binary"
            frame: dict[str, Any] = msgspec.msgpack.decode(data)
            if frame["type"] == type_:
                return frame


@pytest.fixture
async def packed(stack: Stack, alice: RawChat) -> AsyncIterator[PackedChat]:
    """A second device of alice's, in the other form."""
    async with connect(f"ws://127.0.0.1:{stack.port}/", subprotocols=[PACKED]) as ws:
        assert ws.subprotocol == PACKED
        yield PackedChat(ws)


async def hello(packed: PackedChat, stack: Stack, alice: RawChat) -> dict[str, Any]:
    """Log in and return the welcome."""
    await packed.tell("hello", v=1, token=stack.token(alice.user), device="packed")
    return await packed.hear("welcome")


async def test_packed_device_hears_and_says_the_same(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str, packed: PackedChat
) -> None:
    """Ack, events and history are the objects that a device with JSON gets."""
    welcome = await hello(packed, stack, alice)
    assert welcome["user"] == alice.user

    body = "Grüße, 你好 \U0001f600\n" + "x" * 3000  # longer than headers made beforehand
    await packed.tell("send", id=7, chat=pair, ref="p-1", body=body)
    ack = await packed.hear("ack")
    mine, his = await packed.hear("event"), await bob.expect_frame("event", kind="message")
    await bob.say(pair, "back")
    back = await packed.hear("event")
    await packed.tell("history", id=8, chat=pair, limit=10)
    page = await packed.hear("page")

    assert (ack["id"], ack["ref"], ack["seq"]) == (7, "p-1", 1)
    assert mine["message"] == his["message"] and mine["message"]["body"] == body
    assert back["message"]["body"] == "back"
    assert [message["body"] for message in page["messages"]] == [body, "back"]


async def test_packed_frame_that_is_wrong_is_refused_by_its_field(
    stack: Stack, alice: RawChat, packed: PackedChat
) -> None:
    """Errors are the same, and the connection lives."""
    await hello(packed, stack, alice)

    await packed.tell("send", id=3, chat="a b", ref="r", body="x")
    error = await packed.hear("error")

    assert (error["id"], error["code"]) == (3, "bad_request")
    assert error["message"].startswith("chat:")


@pytest.mark.parametrize("data", [b"\xc1", b"\xdf\xff\xff\xff\xff", '{"type":"typing"}'])
async def test_what_is_not_packed_closes_the_connection(
    packed: PackedChat, data: bytes | str
) -> None:
    """A client with another encoding gets an error, as with JSON."""
    await packed.ws.send(data)

    with pytest.raises(ConnectionClosed) as caught:
        await packed.ws.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 3501
    assert "msgpack" in caught.value.rcvd.reason
