"""Fuzzing of a gateway: malformed handshakes and frames, and almost valid JSON and MessagePack.

Covers rows 6, 10, 11, 15 and 18 of docs/security.md: malformed input causes an error or a close for
its sender and affects no one else. Meanwhile two bystanders send, receive and read; their latencies
are printed. The seed is fixed unless `FUZZ_SEED` is set; `FUZZ_TIMES` multiplies the number of
cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from chatserver.dev.servers import Server, is_http_ready
from chatserver.protocol.frames import PACKED_SUBPROTOCOL
from tests.support import wire
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack
from tests.support.wire import Ended, RawSocket, Refused, build_frame

SEED, TIMES = int(os.environ.get("FUZZ_SEED", "20261121")), int(os.environ.get("FUZZ_TIMES", "1"))
HANDSHAKES, STREAMS, FRAMES, PACKED = 300 * TIMES, 300 * TIMES, 4_000 * TIMES, 1_500 * TIMES
FRAMES_AT_ONCE = 40
GROWTH_BYTES_MAX = 16 * 1024 * 1024
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
EXAMPLES = [
    json.loads(example)
    for _, example in re.findall(r"^```json *(\w*)\n(.*?)\n```$", PAGE.read_text(), re.M | re.S)
]
HOSTILE: list[Any] = [
    None, True, -1, 0, 2**53, 2**63, 2**70, -(2**70), 10**4000, 1.5, 1e308, -0.0, 5e-324,
    "\ud800", "\udc00\ud800", "a\udfff",
    "", " ", "\0", "a" * 70, "{p0}:chat", "a#b", "../../etc", "\u202e", "e\u0301" * 9,
    "\ud83d\ude00", "'; DROP", "constructor", [], [[]], [None], ["x"] * 300,
    {}, {"": ""}, {"epoch": "e", "seq": -1}, {"epoch": 1}, {"$gt": ""},
]  # fmt: skip
SUBPROTOCOLS = [
    "", "chat", "chat.v0", "CHAT.V1", "chat.v1,", "chat.v1\x00", "chat.v1.msgpackx", "a" * 4000,
]  # fmt: skip
# Lengths without content, extensions, timestamps, bytes, and an unassigned byte.
PACKED_TAILS = [
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xd4\x01\x00", b"\xc7\x00\x05",
    b"\xd6\xff\x00\x00\x00\x00", b"\xc4\x02hi", b"\xc1", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\xa2\xc3\x28", b"\xa3\xed\xa0\x80", b"\x91" * 1_000, b"\x81\xa1a" * 1_000,
    b"\x82\xa1a\x01\xa1a\x02", b"\x81\x01\x02", b"",
]  # fmt: skip


@pytest.fixture
async def fuzzed(stack: Stack) -> AsyncIterator[Server]:
    """A separate gateway whose rate limits do not reject the input before it is parsed."""
    unlimited = {
        f"CHAT_LIMITS_{kind}": "1000000/s burst 1000000"
        for kind in ("SENDS", "REQUESTS", "CONNECTIONS", "FAILURES")
    }
    server = stack.start_gateway(**unlimited)
    yield server
    server.kill()


def broken_handshake(rng: random.Random) -> bytes:
    """Return random bytes, or a valid handshake with changes."""
    data, _ = wire.build_request("127.0.0.1")
    if rng.random() < 0.3:
        return rng.randbytes(rng.randint(0, 600)) + b"\r\n\r\n"
    if rng.random() < 0.2:
        names = rng.sample(SUBPROTOCOLS, rng.randint(1, 3))
        return wire.build_request("127.0.0.1", subprotocols=names)[0] + broken_stream(rng)
    return mutated(data, rng)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return data with some bytes changed, removed, repeated or inserted."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(4):
            case 0:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + rng.randint(1, 8) :]
            case 2:
                data = data[:at] + data[max(0, at - 20) :]
            case _:
                data = data[:at] + rng.randbytes(4) + data[at:]
    return data


def broken_stream(rng: random.Random) -> bytes:
    """Return frames with random opcodes, bits and lengths, complete or not."""
    frames = [
        build_frame(
            rng.randrange(16),
            rng.randbytes(rng.choice([0, 1, 3, 125, 126, 300, 70_000])),
            fin=rng.random() < 0.7,
            rsv=rng.choice([0, 0, 0, 1, 4, 7]),
            mask=rng.choice([b"\1\2\3\4", b"\1\2\3\4", b"\1\2\3\4", None]),
            length_bytes=rng.choice([None, None, None, 8]),
        )
        for _ in range(rng.randint(1, 5))
    ]
    return mutated(b"".join(frames), rng) if rng.random() < 0.5 else b"".join(frames)


def hostile_frame(rng: random.Random) -> dict[str, Any]:
    """Return an example frame of the documentation with hostile values."""
    frame: dict[str, Any] = copy.deepcopy(rng.choice(EXAMPLES))
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([*frame, "nosuch"])
        match rng.randrange(4):
            case 0:
                frame.pop(name, None)
            case 1 if isinstance(frame.get(name), dict) and frame[name]:
                inner = rng.choice(list(frame[name]))
                frame[name] = {**frame[name], inner: rng.choice(HOSTILE)}
            case _:
                frame[name] = rng.choice(HOSTILE)
    return frame


def almost_valid_json(rng: random.Random) -> bytes:
    """Return the JSON of a hostile frame, sometimes malformed."""
    frame = hostile_frame(rng)
    text = json.dumps(frame, ensure_ascii=rng.random() < 0.5)
    match rng.randrange(12):
        case 0:
            text = text.replace("{", '{"type":"send",', 1)  # a duplicate name
        case 1:
            text = text.replace(":", ": NaN,", 1)
        case 2:
            text = "[" * 5_000 + text
        case 3:
            return mutated(text.encode("utf-8", "surrogatepass"), rng)
        case 4:
            text = text.replace(":", ":" + '{"a":' * 5_000 + "1" + "}" * 5_000 + ',"b":', 1)
        case 5:
            text = text[: rng.randrange(len(text))]
        case 6:
            return text.encode("utf-16", "surrogatepass")
    return text.encode("utf-8", "surrogatepass")


def almost_valid_msgpack(rng: random.Random) -> bytes:
    """Return a hostile frame in MessagePack: truncated, mutated, or with a hostile tail."""
    try:
        data = msgspec.msgpack.encode(hostile_frame(rng))
    except (OverflowError, UnicodeEncodeError):  # cannot be represented in MessagePack
        data = b"\x81\xa4type"
    match rng.randrange(4):
        case 0:
            return data[: rng.randrange(len(data))] + rng.choice(PACKED_TAILS)
        case 1:
            return mutated(data, rng)
        case 2:
            return b"\x82\xa4type\xa5chats\xa2id" + rng.choice(PACKED_TAILS)
    return data


async def send_bytes(port: int, data: bytes) -> None:
    """Send bytes to the port, wait briefly for a response, and disconnect."""
    ws = await RawSocket.connect(port)
    try:
        await ws.write(data)
        await ws.read_response(0.05)
    except (Ended, Refused, TimeoutError, ValueError, IndexError, asyncio.LimitOverrunError):
        pass
    finally:
        await ws.abort()


async def send_stream(port: int, data: bytes) -> None:
    """Complete the handshake, then send bytes."""
    async with await RawSocket.open(port) as ws:
        try:
            await ws.write(data)
            await ws.recv(0.05)
        except (Ended, TimeoutError):
            pass


async def send_frames(
    open_live: Callable[[], Any], frames: list[bytes], opcode: int = wire.TEXT
) -> int:
    """Send frames in a live session; return how many were sent before it was closed."""
    async with await open_live() as ws:
        try:
            for sent, frame in enumerate(frames, 1):
                await ws.send(opcode, frame)
                if sent % 10 == 0:
                    await ws.send(wire.PING, b"%d" % sent)
                    while (await ws.recv()).opcode not in (wire.PONG, wire.CLOSE):
                        pass
        except Ended:
            return sent
    return len(frames)


class Bystander:
    """Two users who chat continuously. Every message must be acked and delivered in order."""

    def __init__(self, sender: RawChat, reader: RawChat, chat: str) -> None:
        self._sender, self._reader, self._chat = sender, reader, chat
        self.bodies: list[str] = []
        self.latencies: dict[str, list[float]] = {"send": [], "delivery": [], "history": []}

    async def run(self) -> None:
        """Chat until canceled, between two messages."""
        while True:
            await self.chat_once()
            await asyncio.sleep(0.02)

    async def chat_once(self) -> None:
        """Send a message, wait for its delivery, and read it in the history."""
        body = f"message {len(self.bodies)}"
        self.bodies.append(body)
        started = time.perf_counter()
        await self._sender.send(self._chat, body)
        self._record("send", started)
        await self._reader.expect(
            lambda me: me.messages(self._chat)[-1:] and self.has_last_message()
        )
        self._record("delivery", started)
        started = time.perf_counter()
        page = await self._reader.request("history", chat=self._chat, limit=1)
        self._record("history", started)
        assert [message["body"] for message in page["messages"]] == [body]

    def has_last_message(self) -> bool:
        """Return whether the reader has the last message."""
        return bool(self._reader.messages(self._chat)[-1]["body"] == self.bodies[-1])

    def _record(self, what: str, started: float) -> None:
        self.latencies[what].append(time.perf_counter() - started)

    def pop_report(self, phase: str) -> str:
        """Return the latencies since the last report as text, and reset them."""
        parts = []
        for what, found in self.latencies.items():
            ordered = sorted(found)
            p50, p99 = (ordered[int((len(ordered) - 1) * share)] * 1e3 for share in (0.5, 0.99))
            parts.append(f"{what} p50 {p50:.1f} p99 {p99:.1f} max {ordered[-1] * 1e3:.1f} ms")
            found.clear()
        return f"bystander, {phase}: " + "; ".join(parts)


@contextlib.asynccontextmanager
async def chatting(bystander: Bystander) -> AsyncIterator[asyncio.Task[None]]:
    """Let a bystander chat until the block ends; raise its errors."""
    task = asyncio.create_task(bystander.run())
    try:
        yield task
    finally:
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
    if not isinstance(end, asyncio.CancelledError):
        raise end


@pytest.mark.timeout(600)
async def test_malformed_input_affects_only_its_sender(
    stack: Stack, fuzzed: Server, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Two users chat during thousands of malformed inputs. The gateway stays healthy and small."""
    assert fuzzed.process is not None
    rng, port = random.Random(SEED), fuzzed.launch.port
    process = psutil.Process(fuzzed.process.pid)
    numbers = iter(range(10**9))

    async def open_live() -> RawSocket:
        return await stack.open_live(port, f"gateway-fuzz-{next(numbers)}")

    async def open_packed() -> RawSocket:
        ws = await RawSocket.open(port, subprotocols=(PACKED_SUBPROTOCOL,))
        user = f"gateway-fuzz-{next(numbers)}"
        hello = {"type": "hello", "v": 1, "token": stack.token(user), "device": "raw"}
        await ws.send(wire.BINARY, msgspec.msgpack.encode(hello))
        welcome = await ws.recv_packed()
        assert welcome["type"] == "welcome", welcome
        return ws

    async def run_round(share: float) -> None:
        for build, send, count in (
            (broken_handshake, send_bytes, HANDSHAKES),
            (broken_stream, send_stream, STREAMS),
        ):
            cases = [build(rng) for _ in range(int(count * share))]
            for at in range(0, len(cases), 20):
                await asyncio.gather(*(send(port, case) for case in cases[at : at + 20]))
        left = int(FRAMES * share)
        while left > 0:
            frames = [almost_valid_json(rng) for _ in range(min(left, FRAMES_AT_ONCE))]
            left -= await send_frames(open_live, frames)
        left = int(PACKED * share)
        while left > 0:
            frames = [almost_valid_msgpack(rng) for _ in range(min(left, FRAMES_AT_ONCE))]
            left -= await send_frames(open_packed, frames, wire.BINARY)

    async with (
        stack.chat_of(alice.user, port=port, device="busy") as sender,
        stack.chat_of(bob.user, port=port, device="busy") as reader,
    ):
        bystander = Bystander(sender, reader, pair)
        for _ in range(50):
            await bystander.chat_once()
        print(bystander.pop_report("calm"))  # noqa: T201  # shown by pytest -rP
        async with chatting(bystander):
            await run_round(0.4)
            before = process.memory_info().rss
            await run_round(0.6)
        print(bystander.pop_report("fuzzed"))  # noqa: T201
        assert [m["body"] for m in reader.messages(pair)][: len(bystander.bodies) - 1] == (
            bystander.bodies[:-1]
        )
    await eventually(lambda: process.memory_info().rss - before < GROWTH_BYTES_MAX)

    assert fuzzed.process.poll() is None
    for path in ("/healthz", "/readyz"):
        await eventually(lambda path=path: is_http_ready(port, path), what=path)
    async with stack.chat_of(bob.user, port=port, device="late") as late:
        await alice.send(pair, "still here")
        await late.expect(lambda me: [m["body"] for m in me.messages(pair)][-1:] == ["still here"])
    log = fuzzed.log_path.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
    assert '"level":"error"' not in log.replace(" ", "")
