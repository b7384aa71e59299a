"""Echo server with the gateway's connection class, to test and benchmark its WebSocket code.

It uses the gateway's `Connection`, with a `Host` and a `Receiver` that echo received messages. With
subprotocol `chat.v1`, it echoes text messages; with `chat.v1.msgpack`, binary messages.

    python -m tests.support.echo_server --port 9001
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import uvloop
from websockets.http11 import Request
from websockets.server import ServerProtocol

from chatserver import config
from chatserver.domain.ids import DeviceId, GatewayId, UserId
from chatserver.gateway.transport.connection import Connection


class EchoReceiver:
    user = UserId("")
    device = DeviceId("")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def handle_message(self, payload: bytes) -> None:
        self._connection.send_text(payload)

    def handle_disconnect(self) -> None:
        """Do nothing."""

    def record_slow_close(self, waiting_bytes: int) -> None:
        """Do nothing."""


class EchoHost:
    def __init__(self, settings: config.Gateway) -> None:
        self.settings = settings
        self.gateway = GatewayId("echo")
        self.slow: set[Connection] = set()
        self._dirty: list[Connection] = []

    def handle_connect(self, connection: Connection) -> None:
        """Do nothing."""

    def respond_http(self, request: Request, protocol: ServerProtocol, address: str) -> bool:
        return False

    def get_address(self, peer: str, request: Request) -> str:
        return peer

    def create_receiver(self, connection: Connection) -> EchoReceiver:
        return EchoReceiver(connection)

    def remove_connection(self, connection: Connection) -> None:
        """Do nothing."""

    def flush_soon(self, connection: Connection) -> None:
        """Write the output of one event loop iteration in one system call, as the gateway does."""
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._flush)
        self._dirty.append(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()


@contextlib.asynccontextmanager
async def open_echo(
    settings: config.Gateway,
    port: int = 0,
    make_connection: Callable[[EchoHost], Connection] = Connection,
) -> AsyncIterator[int]:
    host = EchoHost(settings)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: make_connection(host), "127.0.0.1", port, backlog=1024
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def serve(port: int) -> None:
    async with open_echo(config.Gateway(), port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
