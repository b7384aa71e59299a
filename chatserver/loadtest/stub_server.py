"""Stub server: `chat.v1` in memory, in one process, without checks or limits.

It is used to measure the load tool itself, and can inject faults that the tool must detect. The
load tool is the only supported client: frames must be masked with the zero key, and requests must
be valid.

    python -m chatserver.loadtest.stub_server      prints its port; serves until its input ends
    python -m chatserver.loadtest.stub_server --port 9000 [--fault lose|repeat|swap [--fault-seq 5]]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from chatserver import process_runtime
from chatserver.loadtest import frame_reader, wire

EPOCH: Final = "stub"
FAULTS: Final = ("lose", "repeat", "swap")
FAULT_SEQ: Final = 1000  # By default, `--fault` affects the message with this seq in each chat.
_MID: Final = "01JD0000000000000000000000"
_FIRST_TS: Final = 1_700_000_000_000_000

Fault = Callable[[str, int, bytes], list[bytes]]


class StubRequest(msgspec.Struct, gc=False):
    """Any request, reduced to the fields that the stub uses."""

    type: str
    id: int = 0
    device: str = ""
    cursor: frame_reader.Cursor | None = None
    user: str = ""
    members: list[str] = []
    users: list[str] = []
    chat: str = ""
    ref: str = ""
    body: str = ""
    before: int | None = None
    after: int | None = None
    limit: int = 50


class StubState:
    """The state of the stub. `fault` returns the frames to send to a user in place of an event.

    A user who has missed more than `inbox_max` events receives `too_long`.
    """

    inbox_max = 1_000_000_000

    def __init__(self) -> None:
        self.members: dict[str, list[str]] = {}
        self.logs: dict[str, list[bytes]] = {}
        self.refs: dict[tuple[str, str], int] = {}
        self.inboxes: dict[str, list[bytes]] = {}
        self.live: dict[str, Stub] = {}
        self.fault: Fault | None = None

    def deliver(self, user: str, seq: int, rest: bytes) -> None:
        inbox = self.inboxes.setdefault(user, [])
        inbox.append(rest)
        frame = encode_event(len(inbox), rest)
        frames = [frame] if self.fault is None else self.fault(user, seq, frame)
        connection = self.live.get(user)
        if connection is not None:
            connection.output.extend(frames)
            connection.flush_soon()


class Stub(asyncio.Protocol):
    """A connection to the stub server."""

    def __init__(self, state: StubState) -> None:
        self._state = state
        self._rest = b""
        self._is_open = False
        self._is_flushing = False
        self.user = ""
        self.output: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state.live.get(self.user) is self:
            del self._state.live[self.user]

    def flush_soon(self) -> None:
        """Write the buffered output at the end of this event loop iteration."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.transport.write(b"".join(self.output))
        self.output.clear()

    def data_received(self, data: bytes) -> None:
        data, self._rest = self._rest + data, b""
        if not self._is_open:
            self._upgrade(data)
            return
        pos, end = 0, len(data)
        while end - pos >= 6:
            size = data[pos + 1] & 0x7F
            start = pos + 6
            if size == 126:
                start, size = pos + 8, data[pos + 2] << 8 | data[pos + 3]
            if start + size > end:
                break
            if data[pos] == wire.TEXT:
                self._handle(msgspec.json.decode(data[start : start + size], type=StubRequest))
            elif data[pos] == wire.PING:
                payload = data[start : start + size]
                self.output.append(bytes((wire.PONG, len(payload))) + payload)
            pos = start + size
        self._rest = data[pos:]
        self.flush_soon()

    def _upgrade(self, data: bytes) -> None:
        key = data.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + wire.compute_accept(key) + b"\r\n\r\n"
        )
        self._is_open = True

    def _reply(self, **fields: Any) -> None:
        self.output.append(encode_frame(msgspec.json.encode(fields)))

    def _handle(self, request: StubRequest) -> None:
        match request.type:
            case "hello":
                self._handle_hello(request)
            case "send":
                self._handle_send(request)
            case "open_direct":
                self._open_chat(request, f"d-{self.user}-{request.user}", [request.user])
            case "create_chat":
                self._open_chat(request, f"g-{request.ref}", request.members)
            case "invite":
                self._state.members[request.chat].extend(request.users)
                self._reply(type="ok", id=request.id)
            case "history":
                self._handle_history(request)

    def _handle_hello(self, request: StubRequest) -> None:
        self.user = request.device.removesuffix("-d")
        self._state.live[self.user] = self
        inbox = self._state.inboxes.setdefault(self.user, [])
        self._reply(type="welcome", epoch=EPOCH, seq=len(inbox), limits={})
        if request.cursor is not None and len(inbox) - request.cursor.seq > self._state.inbox_max:
            head = {"epoch": EPOCH, "seq": len(inbox)}
            self._reply(type="too_long", cursor=head, chats=[])
        elif request.cursor is not None:
            begin = request.cursor.seq
            self.output.extend(encode_event(n, e) for n, e in enumerate(inbox[begin:], begin + 1))

    def _open_chat(self, request: StubRequest, chat: str, others: list[str]) -> None:
        self._state.members[chat] = [self.user, *others]
        self._state.logs[chat] = []
        self._reply(type="ok", id=request.id, chat={"chat": chat})

    def _handle_send(self, request: StubRequest) -> None:
        state, name = self._state, (self.user, request.ref)
        ack = state.refs.get(name)
        if ack is None:
            log = state.logs[request.chat]
            seq = state.refs[name] = len(log) + 1
            message = msgspec.json.encode(
                {
                    "seq": seq,
                    "ts": _FIRST_TS + seq,
                    "chat": request.chat,
                    "mid": _MID,
                    "sender": self.user,
                    "ref": request.ref,
                    "kind": "text",
                    "body": request.body,
                }
            )
            log.append(message)
            tail = b',"kind":"message","chat":"%b","cs":%d,"message":%b}' % (
                request.chat.encode(),
                seq,
                message,
            )
            for user in state.members[request.chat]:
                state.deliver(user, seq, tail)
        seq = ack or seq
        position = {"mid": _MID, "seq": seq, "ts": _FIRST_TS + seq, "dup": ack is not None}
        self._reply(type="ack", id=request.id, ref=request.ref, **position, durability="hot")

    def _handle_history(self, request: StubRequest) -> None:
        log = self._state.logs[request.chat]
        if request.before is not None:
            end = min(request.before - 1, len(log))
            first = max(0, end - request.limit)
        else:
            first = request.after or 0
            end = min(len(log), first + request.limit)
        has_more = first > 0 if request.before is not None else end < len(log)
        messages = [msgspec.Raw(message) for message in log[first:end]]
        self._reply(type="page", id=request.id, messages=messages, tier="stub", more=has_more)


def encode_event(seq: int, tail: bytes) -> bytes:
    return encode_frame(b'{"type":"event","epoch":"%b","seq":%d%b' % (EPOCH.encode(), seq, tail))


def encode_frame(payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)


def make_fault_once(fault: str, fault_seq: int = FAULT_SEQ) -> Fault:
    """Return a fault that loses, repeats or swaps one message of a chat for each receiver."""
    responses: dict[str, bytes] = {}

    def apply_fault(user: str, seq: int, frame: bytes) -> list[bytes]:
        if user.startswith("s"):  # senders in the direct benchmark get no faults
            return [frame]
        if seq == fault_seq:
            if fault == "swap":
                responses[user] = frame
            return [frame, frame] if fault == "repeat" else []
        return [frame, responses.pop(user)] if user in responses else [frame]

    return apply_fault


async def open_stub(state: StubState, port: int = 0) -> tuple[asyncio.Server, int]:
    """Listen on a loopback port (0: any free port); return `(server, port)`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stub(state), "127.0.0.1", port, backlog=1024)
    return server, int(server.sockets[0].getsockname()[1])


async def serve(port: int, fault: str | None, fault_seq: int) -> None:
    """Serve until killed or, if `port` is 0, until standard input ends."""
    state = StubState()
    state.fault = None if fault is None else make_fault_once(fault, fault_seq)
    server, bound = await open_stub(state, port)
    if port:
        await server.serve_forever()
    sys.stdout.write(f"{bound}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--fault-seq", type=int, default=FAULT_SEQ)
    options = parser.parse_args()
    process_runtime.stop_with_parent()
    process_runtime.run(serve(options.port, options.fault, options.fault_seq))


if __name__ == "__main__":
    main()
