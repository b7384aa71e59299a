"""A gateway under nonsense: broken handshakes, broken frames, and frames that are almost right.

Rows 6, 10, 11, 15 and 18 of the list of others' holes in one test: whatever comes in costs the one
who sent it an error or the connection, and nobody else anything. The cases are the same every time.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from chatserver.dev.servers import Server, answers_http
from tests.support import wire
from tests.support.rawchat import RawChat
from tests.support.servers import eventually
from tests.support.stack import Stack
from tests.support.wire import Ended, RawSocket, Refused, build_frame

pytest_plugins = ["tests.support.stack_fixtures"]

HANDSHAKES, STREAMS, FRAMES = 300, 300, 4_000
FRAMES_AT_ONCE = 40
GROWTH_BYTES_MAX = 16 * 1024 * 1024
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
EXAMPLES = [
    json.loads(example)
    for _, example in re.findall(r"^```json *(\w*)\n(.*?)\n```$", PAGE.read_text(), re.M | re.S)
]
HOSTILE: list[Any] = [
    None, True, -1, 0, 2**53, 2**63, 2**70, -(2**70), 1.5, 1e308,
    "", " ", "\0", "a" * 70, "{p0}:chat", "a#b", "../../etc", "\u202e", "e\u0301" * 9,
    "\ud83d\ude00", "'; DROP", "constructor", [], [[]], [None], ["x"] * 300,
    {}, {"": ""}, {"epoch": "e", "seq": -1}, {"epoch": 1}, {"$gt": ""},
]  # fmt: skip


@pytest.fixture
async def fuzzed(stack: Stack) -> AsyncIterator[Server]:
    """A gateway of its own, whose limits let nonsense through to where it is looked at."""
    burst = {
        f"CHAT_LIMITS_{kind}_{what}": "1000000"
        for kind in ("SENDS", "REQUESTS", "CONNECTIONS", "FAILURES")
        for what in ("BURST", "PER_S")
    }
    server = stack.start_gateway(**burst)
    yield server
    server.kill()


def broken_handshake(chance: random.Random) -> bytes:
    """Return bytes in place of a handshake: noise, or a good one with something changed."""
    data, _ = wire.build_request("127.0.0.1")
    if chance.random() < 0.3:
        return chance.randbytes(chance.randint(0, 600)) + b"\r\n\r\n"
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


def almost_right(chance: random.Random) -> bytes:
    """Return the text of a frame of the documentation with something hostile in it."""
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
    return text.encode("utf-8", "surrogatepass")


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


async def speak(open_live: Callable[[], Any], frames: list[bytes]) -> int:
    """Say frames on a live session; return how many there were before it was closed."""
    async with await open_live() as ws:
        try:
            for said, frame in enumerate(frames, 1):
                await ws.send(wire.TEXT, frame)
                if said % 10 == 0:
                    await ws.send(wire.PING, b"%d" % said)
                    while (await ws.recv()).opcode not in (wire.PONG, wire.CLOSE):
                        pass
        except Ended:
            return said
    return len(frames)


@pytest.mark.timeout(600)
async def test_nonsense_costs_only_who_sends_it(
    stack: Stack, fuzzed: Server, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """After thousands of broken inputs the process is the same, healthy, and no larger."""
    assert fuzzed.process is not None
    chance, port = random.Random(20_261_121), fuzzed.launch.port
    process = psutil.Process(fuzzed.process.pid)
    numbers = iter(range(10**9))

    async def open_live() -> RawSocket:
        return await stack.open_live(port, f"nonsense-{next(numbers)}")

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

    await one_round(0.4)
    before = process.memory_info().rss
    await one_round(0.6)
    await eventually(lambda: process.memory_info().rss - before < GROWTH_BYTES_MAX)

    assert fuzzed.process.poll() is None
    for path in ("/healthz", "/readyz"):
        await eventually(lambda path=path: answers_http(port, path), what=path)
    async with stack.chat_of(bob.user, port=port, device="late") as late:
        await alice.say(pair, "still here")
        await late.expect(lambda me: [m["body"] for m in me.messages(pair)] == ["still here"])
    said = fuzzed.log_path.read_text(errors="replace")
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]
    assert '"level":"error"' not in said.replace(" ", "")
