"""A gateway under nonsense: broken handshakes and frames, and JSON and msgpack almost right.

Rows 6, 10, 11, 15 and 18 of the list of others' holes in one test: whatever comes in costs the one
who sent it an error or the connection, and nobody else anything. Meanwhile a bystander sends, hears
and reads; the latencies are printed. The cases follow from the seed, the same one every time unless
`FUZZ_SEED` names another; `FUZZ_TIMES` multiplies their number.
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

from chatserver.dev.servers import Server, answers_http
from chatserver.protocol.frames import PACKED_SUBPROTOCOL
from tests.support import wire
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack
from tests.support.wire import Ended, RawSocket, Refused, build_frame

pytest_plugins = ["tests.support.stack_fixtures"]

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
# Lengths that nothing follows, extensions, timestamps, bytes, and a byte that is never used.
PACKED_TAILS = [
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xd4\x01\x00", b"\xc7\x00\x05",
    b"\xd6\xff\x00\x00\x00\x00", b"\xc4\x02hi", b"\xc1", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\xa2\xc3\x28", b"\xa3\xed\xa0\x80", b"\x91" * 1_000, b"\x81\xa1a" * 1_000,
    b"\x82\xa1a\x01\xa1a\x02", b"\x81\x01\x02", b"",
]  # fmt: skip


@pytest.fixture
async def fuzzed(stack: Stack) -> AsyncIterator[Server]:
    """A gateway of its own, whose limits let nonsense through to where it is looked at."""
    burst = {
        f"CHAT_LIMITS_{kind}": "1000000/s burst 1000000"
        for kind in ("SENDS", "REQUESTS", "CONNECTIONS", "FAILURES")
    }
    server = stack.start_gateway(**burst)
    yield server
    server.kill()


def broken_handshake(chance: random.Random) -> bytes:
    """Return bytes in place of a handshake: noise, or a good one with something changed."""
    data, _ = wire.build_request("127.0.0.1")
    if chance.random() < 0.3:
        return chance.randbytes(chance.randint(0, 600)) + b"\r\n\r\n"
    if chance.random() < 0.2:
        names = chance.sample(SUBPROTOCOLS, chance.randint(1, 3))
        return wire.build_request("127.0.0.1", subprotocols=names)[0] + broken_stream(chance)
    return mutated(data, chance)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return data with some bytes flipped, lost, or there twice."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) or 1)
        match chance.randrange(4):
            case 0:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + chance.randint(1, 8) :]
            case 2:
                data = data[:at] + data[max(0, at - 20) :]
            case _:
                data = data[:at] + chance.randbytes(4) + data[at:]
    return data


def broken_stream(chance: random.Random) -> bytes:
    """Return frames of any opcode, bits and length, whole or not."""
    frames = [
        build_frame(
            chance.randrange(16),
            chance.randbytes(chance.choice([0, 1, 3, 125, 126, 300, 70_000])),
            fin=chance.random() < 0.7,
            rsv=chance.choice([0, 0, 0, 1, 4, 7]),
            mask=chance.choice([b"\1\2\3\4", b"\1\2\3\4", b"\1\2\3\4", None]),
            length_bytes=chance.choice([None, None, None, 8]),
        )
        for _ in range(chance.randint(1, 5))
    ]
    return mutated(b"".join(frames), chance) if chance.random() < 0.5 else b"".join(frames)


def hostile_frame(chance: random.Random) -> dict[str, Any]:
    """Return a frame of the documentation with something hostile in it."""
    frame: dict[str, Any] = copy.deepcopy(chance.choice(EXAMPLES))
    for _ in range(chance.randint(1, 3)):
        name = chance.choice([*frame, "nosuch"])
        match chance.randrange(4):
            case 0:
                frame.pop(name, None)
            case 1 if isinstance(frame.get(name), dict) and frame[name]:
                inner = chance.choice(list(frame[name]))
                frame[name] = {**frame[name], inner: chance.choice(HOSTILE)}
            case _:
                frame[name] = chance.choice(HOSTILE)
    return frame


def almost_right(chance: random.Random) -> bytes:
    """Return the text of a hostile frame, now and then with the JSON itself broken."""
    frame = hostile_frame(chance)
    text = json.dumps(frame, ensure_ascii=chance.random() < 0.5)
    match chance.randrange(12):
        case 0:
            text = text.replace("{", '{"type":"send",', 1)  # a name twice
        case 1:
            text = text.replace(":", ": NaN,", 1)
        case 2:
            text = "[" * 5_000 + text
        case 3:
            return mutated(text.encode("utf-8", "surrogatepass"), chance)
        case 4:
            text = text.replace(":", ":" + '{"a":' * 5_000 + "1" + "}" * 5_000 + ',"b":', 1)
        case 5:
            text = text[: chance.randrange(len(text))]
        case 6:
            return text.encode("utf-16", "surrogatepass")
    return text.encode("utf-8", "surrogatepass")


def almost_packed(chance: random.Random) -> bytes:
    """Return a hostile frame as msgpack, whole, cut, mutated, or with a hostile value behind it."""
    try:
        data = msgspec.msgpack.encode(hostile_frame(chance))
    except (OverflowError, UnicodeEncodeError):  # a number or text that msgpack has no form for
        data = b"\x81\xa4type"
    match chance.randrange(4):
        case 0:
            return data[: chance.randrange(len(data))] + chance.choice(PACKED_TAILS)
        case 1:
            return mutated(data, chance)
        case 2:
            return b"\x82\xa4type\xa5chats\xa2id" + chance.choice(PACKED_TAILS)
    return data


async def throw(port: int, data: bytes) -> None:
    """Send bytes to the port and hang up once something, or nothing, has come back."""
    ws = await RawSocket.connect(port)
    try:
        await ws.write(data)
        await ws.read_response(0.05)
    except (Ended, Refused, TimeoutError, ValueError, IndexError, asyncio.LimitOverrunError):
        pass
    finally:
        await ws.abort()


async def stream(port: int, data: bytes) -> None:
    """Open a socket as one should, then send bytes."""
    async with await RawSocket.open(port) as ws:
        try:
            await ws.write(data)
            await ws.recv(0.05)
        except (Ended, TimeoutError):
            pass


async def speak(open_live: Callable[[], Any], frames: list[bytes], opcode: int = wire.TEXT) -> int:
    """Say frames on a live session; return how many there were before it was closed."""
    async with await open_live() as ws:
        try:
            for said, frame in enumerate(frames, 1):
                await ws.send(opcode, frame)
                if said % 10 == 0:
                    await ws.send(wire.PING, b"%d" % said)
                    while (await ws.recv()).opcode not in (wire.PONG, wire.CLOSE):
                        pass
        except Ended:
            return said
    return len(frames)


class Bystander:
    """Two users who chat all the time; every message must be acked and delivered, in order."""

    def __init__(self, sender: RawChat, reader: RawChat, chat: str) -> None:
        self._sender, self._reader, self._chat = sender, reader, chat
        self.bodies: list[str] = []
        self.latencies: dict[str, list[float]] = {"send": [], "heard": [], "history": []}

    async def run(self) -> None:
        """Chat until cancelled, between two messages."""
        while True:
            await self.chat_once()
            await asyncio.sleep(0.02)

    async def chat_once(self) -> None:
        """Send a message, wait for its delivery, and read it in the history."""
        body = f"message {len(self.bodies)}"
        self.bodies.append(body)
        begun = time.perf_counter()
        await self._sender.say(self._chat, body)
        self._note("send", begun)
        await self._reader.expect(lambda me: me.messages(self._chat)[-1:] and self.is_all_heard())
        self._note("heard", begun)
        begun = time.perf_counter()
        page = await self._reader.ask("history", chat=self._chat, limit=1)
        self._note("history", begun)
        assert [message["body"] for message in page["messages"]] == [body]

    def is_all_heard(self) -> bool:
        """True once the reader has the last message."""
        return bool(self._reader.messages(self._chat)[-1]["body"] == self.bodies[-1])

    def _note(self, what: str, begun: float) -> None:
        self.latencies[what].append(time.perf_counter() - begun)

    def take_report(self, phase: str) -> str:
        """Return the latencies since the last report, in words."""
        parts = []
        for what, found in self.latencies.items():
            ordered = sorted(found)
            p50, p99 = (ordered[int((len(ordered) - 1) * share)] * 1e3 for share in (0.5, 0.99))
            parts.append(f"{what} p50 {p50:.1f} p99 {p99:.1f} max {ordered[-1] * 1e3:.1f} ms")
            found.clear()
        return f"bystander, {phase}: " + "; ".join(parts)


@contextlib.asynccontextmanager
async def chatting(bystander: Bystander) -> AsyncIterator[asyncio.Task[None]]:
    """Have a bystander chat until the block ends; what went wrong there is raised."""
    task = asyncio.create_task(bystander.run())
    try:
        yield task
    finally:
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
    if not isinstance(end, asyncio.CancelledError):
        raise end


@pytest.mark.timeout(600)
async def test_nonsense_costs_only_who_sends_it(
    stack: Stack, fuzzed: Server, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Beside thousands of broken inputs two people chat; the process stays healthy and small."""
    assert fuzzed.process is not None
    chance, port = random.Random(SEED), fuzzed.launch.port
    process = psutil.Process(fuzzed.process.pid)
    numbers = iter(range(10**9))

    async def open_live() -> RawSocket:
        return await stack.open_live(port, f"nonsense-{next(numbers)}")

    async def open_packed() -> RawSocket:
        ws = await RawSocket.open(port, subprotocols=(PACKED_SUBPROTOCOL,))
        user = f"nonsense-{next(numbers)}"
        hello = {"type": "hello", "v": 1, "token": stack.token(user), "device": "raw"}
        await ws.send(wire.BINARY, msgspec.msgpack.encode(hello))
        welcome = msgspec.msgpack.decode((await ws.recv()).payload)
        assert welcome["type"] == "welcome", welcome
        return ws

    async def one_round(share: float) -> None:
        for make, use, count in (
            (broken_handshake, throw, HANDSHAKES),
            (broken_stream, stream, STREAMS),
        ):
            cases = [make(chance) for _ in range(int(count * share))]
            for at in range(0, len(cases), 20):
                await asyncio.gather(*(use(port, case) for case in cases[at : at + 20]))
        left = int(FRAMES * share)
        while left > 0:
            frames = [almost_right(chance) for _ in range(min(left, FRAMES_AT_ONCE))]
            left -= await speak(open_live, frames)
        left = int(PACKED * share)
        while left > 0:
            frames = [almost_packed(chance) for _ in range(min(left, FRAMES_AT_ONCE))]
            left -= await speak(open_packed, frames, wire.BINARY)

    async with (
        stack.chat_of(alice.user, port=port, device="busy") as sender,
        stack.chat_of(bob.user, port=port, device="busy") as reader,
    ):
        bystander = Bystander(sender, reader, pair)
        for _ in range(50):
            await bystander.chat_once()
        print(bystander.take_report("calm"))  # noqa: T201  # shown by pytest -rP
        async with chatting(bystander):
            await one_round(0.4)
            before = process.memory_info().rss
            await one_round(0.6)
        print(bystander.take_report("fuzzed"))  # noqa: T201
        assert [m["body"] for m in reader.messages(pair)][: len(bystander.bodies) - 1] == (
            bystander.bodies[:-1]
        )
    await eventually(lambda: process.memory_info().rss - before < GROWTH_BYTES_MAX)

    assert fuzzed.process.poll() is None
    for path in ("/healthz", "/readyz"):
        await eventually(lambda path=path: answers_http(port, path), what=path)
    async with stack.chat_of(bob.user, port=port, device="late") as late:
        await alice.say(pair, "still here")
        await late.expect(lambda me: [m["body"] for m in me.messages(pair)][-1:] == ["still here"])
    said = fuzzed.log_path.read_text(errors="replace")
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]
    assert '"level":"error"' not in said.replace(" ", "")
