"""A server that only pretends: it answers like a gateway and does none of the work.

It shows what the load generator itself can carry, and (``--plant``) that its checks find a message
that is lost, repeated or swapped. One process, no storage, no checks; the direct chat of two users
is named after the one who writes first.

    python -m tests.load.servers.stub_server --port 9000 [--plant lose|repeat|swap]
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import cast

import uvloop

from chatserver.loadtest import wire

_MID = b"01JD0000000000000000000000"
_PLANT_AT = 1000  # the chat seq at which something planted goes wrong


class Stub(asyncio.Protocol):
    """One connection. Frames are trusted to be the load generator's."""

    def __init__(self, users: dict[str, Stub], plant: str | None) -> None:
        self._users = users
        self._plant = plant
        self._rest = b""
        self._is_open = False
        self._user = b""
        self._peer: Stub | None = None
        self._chat_seq = 0
        self._inbox_seq = 0
        self._tail = b""
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        self._rest = b""
        if not self._is_open:
            self._upgrade(data)
            return
        pos, end = 0, len(data)
        mine: list[bytes] = []
        theirs: list[bytes] = []
        while end - pos >= 6:
            if data[pos + 1] & 0x7F == 126:
                start = pos + 8
                stop = start + (data[pos + 2] << 8 | data[pos + 3])
            else:
                start = pos + 6
                stop = start + (data[pos + 1] & 0x7F)
            if stop > end:
                break
            if data[pos] == wire.TEXT and data.startswith(b'{"type":"send"', start):
                self._send(data[start:stop], mine, theirs)
            else:
                self._other(data[pos], data[start:stop], mine)
            pos = stop
        self._rest = data[pos:]
        if mine:
            self.transport.write(b"".join(mine))
        if theirs and self._peer is not None:
            self._peer.transport.write(b"".join(theirs))

    def _upgrade(self, data: bytes) -> None:
        key = data.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + wire.accept_of(key) + b"\r\n\r\n"
        )
        self._is_open = True

    def _send(self, payload: bytes, mine: list[bytes], theirs: list[bytes]) -> None:
        peer = self._peer
        assert peer is not None
        number = payload[20:30]  # fixed places: `id` is a number of ten digits
        if not self._tail:
            chat = payload[39:73]
            body = payload[payload.index(b'"body":') :]
            self._tail = b",%b,%b" % (chat, body)
        chat = self._tail[1:35]
        self._chat_seq = seq = self._chat_seq + 1
        mine.append(
            _frame(
                b'{"type":"ack","id":%b,"ref":"%b","mid":"%b","seq":%d,"ts":1700000000%06d,'
                b'"dup":false,"durability":"hot"}' % (number, number, _MID, seq, seq)
            )
        )
        shared = (
            b',"kind":"message","chat":"%b","cs":%d,"message":{"seq":%d,"ts":1700000000%06d,'
            b'"chat":"%b","mid":"%b","sender":"%b","ref":"%b","kind":"text",%b}'
            % (chat, seq, seq, seq, chat, _MID, self._user, number, self._tail[36:])
        )
        mine.append(self._event(shared))
        if seq == _PLANT_AT and self._plant is not None:
            peer._go_wrong(self._plant, shared, theirs)
            return
        theirs.append(peer._event(shared))
        if peer._held:
            theirs.append(peer._event(peer._held))
            peer._held = b""

    def _event(self, shared: bytes) -> bytes:
        self._inbox_seq += 1
        return _frame(b'{"type":"event","epoch":"stub","seq":%d%b' % (self._inbox_seq, shared))

    def _go_wrong(self, plant: str, shared: bytes, theirs: list[bytes]) -> None:
        if plant == "repeat":
            frame = self._event(shared)
            theirs.extend((frame, frame))
        elif plant == "swap":
            self._held = shared

    def _other(self, first_byte: int, payload: bytes, mine: list[bytes]) -> None:
        if first_byte == wire.PING:
            mine.append(bytes((wire.PONG, len(payload))) + payload)
            return
        if first_byte != wire.TEXT:
            return
        frame = json.loads(payload)
        if frame["type"] == "hello":
            user = frame["device"].removeprefix("dev-")
            self._user = user.encode()
            self._users[user] = self
            answer: dict[str, object] = {"type": "welcome", "epoch": "stub", "seq": 0}
        else:
            peer = self._users[frame["user"]]
            self._peer = peer
            chat = {"chat": ("d-" + "x" * 32), "kind": "direct", "members": []}
            answer = {"type": "ok", "id": frame["id"], "chat": chat}
        mine.append(_frame(json.dumps(answer).encode()))


def _frame(payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    return b"\x81\x7e%c%c%b" % (size >> 8, size & 255, payload)


async def serve(port: int, plant: str | None) -> None:
    """Serve until killed."""
    users: dict[str, Stub] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stub(users, plant), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--plant", choices=("lose", "repeat", "swap"))
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.plant))
