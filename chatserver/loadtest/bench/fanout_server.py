"""Minimal fan-out server: writes each received message to every socket.

It decodes, stores and checks nothing. With `--joined`, all messages from one read are written to a
socket in one write, as in the gateway.

    python -m chatserver.loadtest.bench.fanout_server --port 9001 [--joined]
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop
from websockets.http11 import Request
from websockets.server import ServerProtocol

from chatserver.gateway.transport.frame_codec import encode_text_frame

_transports: list[asyncio.Transport] = []


class FanOut(asyncio.Protocol):
    """A connection to the fan-out server."""

    is_joined = False

    def __init__(self) -> None:
        self._protocol: ServerProtocol | None = ServerProtocol()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport in _transports:
            _transports.remove(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._protocol is not None:
            self._upgrade(self._protocol, data)
            return
        data, pos, frames = self._rest + data, 0, list[bytes]()
        # Every frame has an 8-byte header: 2 bytes, a 2-byte length, and a 4-byte zero mask.
        while len(data) - pos >= 8:
            end = pos + 8 + int.from_bytes(data[pos + 2 : pos + 4], "big")
            if end > len(data):
                break
            frames.append(encode_text_frame(data[pos + 8 : end]))
            pos = end
        self._rest = data[pos:]
        for output in [b"".join(frames)] if self.is_joined else frames:
            for transport in _transports:
                transport.write(output)

    def _upgrade(self, protocol: ServerProtocol, data: bytes) -> None:
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
                self._transport.write(b"".join(protocol.data_to_send()))
                _transports.append(self._transport)
                self._protocol = None


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FanOut, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--joined", action="store_true")
    arguments = parser.parse_args()
    FanOut.is_joined = arguments.joined
    uvloop.run(serve(arguments.port))
