"""chat.v1.msgpack: the same protocol in binary frames, next to devices that use JSON."""

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

MSGPACK = Subprotocol("chat.v1.msgpack")


class MsgpackDevice:
    """A device that uses msgpack."""

    def __init__(self, ws: ClientConnection) -> None:
        self.ws = ws

    async def send(self, type_: str, **fields: Any) -> None:
        """Send a frame."""
        await self.ws.send(msgspec.msgpack.encode({"type": type_, **fields}))

    async def receive(self, type_: str) -> dict[str, Any]:
        """Return the next frame of a type."""
        while True:
            data = await self.ws.recv()
            assert isinstance(data, bytes), "every frame must be binary"
            frame: dict[str, Any] = msgspec.msgpack.decode(data)
            if frame["type"] == type_:
                return frame


@pytest.fixture
async def msgpack_device(stack: Stack, alice: RawChat) -> AsyncIterator[MsgpackDevice]:
    """A second device of alice that uses msgpack."""
    async with connect(f"ws://127.0.0.1:{stack.port}/", subprotocols=[MSGPACK]) as ws:
        assert ws.subprotocol == MSGPACK
        yield MsgpackDevice(ws)


async def log_in(msgpack_device: MsgpackDevice, stack: Stack, alice: RawChat) -> dict[str, Any]:
    """Send `hello` and return `welcome`."""
    await msgpack_device.send("hello", v=1, token=stack.token(alice.user), device="msgpack_device")
    return await msgpack_device.receive("welcome")


async def test_msgpack_device_gets_the_same_objects_as_a_json_device(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str, msgpack_device: MsgpackDevice
) -> None:
    """Ack, events and history are decoded to the same objects that a JSON device gets."""
    welcome = await log_in(msgpack_device, stack, alice)
    assert welcome["user"] == alice.user

    body = (
        "Grüße, 你好 \U0001f600\n" + "x" * 3000
    )  # longer than the precomputed frame headers allow
    await msgpack_device.send("send", id=7, chat=pair, ref="p-1", body=body)
    ack = await msgpack_device.receive("ack")
    own, other = (
        await msgpack_device.receive("event"),
        await bob.expect_frame("event", kind="message"),
    )
    await bob.send(pair, "back")
    back = await msgpack_device.receive("event")
    await msgpack_device.send("history", id=8, chat=pair, limit=10)
    page = await msgpack_device.receive("page")

    assert (ack["id"], ack["ref"], ack["seq"]) == (7, "p-1", 1)
    assert own["message"] == other["message"] and own["message"]["body"] == body
    assert back["message"]["body"] == "back"
    assert [message["body"] for message in page["messages"]] == [body, "back"]


async def test_invalid_msgpack_frame_gets_an_error_that_names_the_field(
    stack: Stack, alice: RawChat, msgpack_device: MsgpackDevice
) -> None:
    """Errors are the same as for JSON frames, and the connection stays open."""
    await log_in(msgpack_device, stack, alice)

    await msgpack_device.send("send", id=3, chat="a b", ref="r", body="x")
    error = await msgpack_device.receive("error")

    assert (error["id"], error["code"]) == (3, "bad_request")
    assert error["message"].startswith("chat:")


@pytest.mark.parametrize("data", [b"\xc1", b"\xdf\xff\xff\xff\xff", '{"type":"typing"}'])
async def test_frame_that_is_not_msgpack_closes_the_connection(
    msgpack_device: MsgpackDevice, data: bytes | str
) -> None:
    """Another encoding is closed with 3501, as invalid JSON is."""
    await msgpack_device.ws.send(data)

    with pytest.raises(ConnectionClosed) as caught:
        await msgpack_device.ws.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 3501
    assert "msgpack" in caught.value.rcvd.reason
