"""The bare engine under the gateway: `websockets` without I/O under an asyncio `Protocol`.

It echoes each message and does nothing else, so what the gateway reaches is a share of what this
reaches. The answers to one read are joined in one write, as in the gateway.

    python -m tests.load.echo_server --port 9001
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol


class Echo(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._protocol = ServerProtocol()

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode is Opcode.TEXT:
                    protocol.send_text(event.data)
            elif isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
        output = protocol.data_to_send()
        if output:
            self._transport.write(b"".join(output))
        if protocol.close_expected():
            self._transport.close()


async def serve(port: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
