"""The pipelined connection: replies belong to calls by their order (fault F16)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from chatserver.errors import Unavailable
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.wire import Reply, Wire
from tests.integration.hot.support import patient
from tests.support.servers.processes import Server, eventually
from tests.support.servers.tcp_proxy import TcpProxy

pytest_plugins = ["tests.integration.hot.fixtures"]


class Answers:
    """Keeps the reply of each call, and sees that there is one only."""

    def __init__(self) -> None:
        self.by_call: dict[int, Reply] = {}

    def of(self, number: int) -> Callable[[Reply], None]:
        """The callback of call `number`."""

        def on_reply(reply: Reply) -> None:
            assert number not in self.by_call, f"call {number} was answered twice"
            self.by_call[number] = reply

        return on_reply


async def open_wire(port: int, timeout_s: float = 60.0) -> Wire:
    """Connect to a port of this machine."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(lambda: Wire("test", timeout_s), "127.0.0.1", port)
    return wire


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def scripted() -> AsyncIterator[Callable[[Script], Awaitable[int]]]:
    """Starts servers with scripted replies; returns the port."""
    servers: list[asyncio.Server] = []

    async def start(script: Script) -> int:
        server = await asyncio.start_server(script, "127.0.0.1", 0)
        servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    yield start
    for server in servers:
        server.close()


# order


async def test_wire_ten_thousand_pipelined_calls_are_answered_in_order(
    redis_server: Server, redis_url: str
) -> None:
    """Each call has its own answer, and Redis ran them in the order in which they were made."""
    wire, answers = await open_wire(redis_server.port), Answers()

    for number in range(10_000):
        if number % 2:
            wire.send(answers.of(number), "ECHO", f"e{number}")
        else:
            wire.send(answers.of(number), "INCR", "count")
    await eventually(lambda: len(answers.by_call) == 10_000, 60)

    assert list(answers.by_call) == list(range(10_000))
    for number, reply in answers.by_call.items():
        assert reply == (b"e%d" % number if number % 2 else number // 2 + 1)
    wire.abort("done")
    await wire.closed


def test_wire_on_the_faster_loop_does_the_same(redis_server: Server, redis_url: str) -> None:
    """Production runs on uvloop, whose transports are others."""

    async def main() -> None:
        wire, answers = await open_wire(redis_server.port), Answers()
        for number in range(1_000):
            wire.send(answers.of(number), "ECHO", f"e{number}")
        await eventually(lambda: len(answers.by_call) == 1_000)
        assert list(answers.by_call.values()) == [b"e%d" % number for number in range(1_000)]
        wire.abort("done")
        wire = await open_wire(redis_server.port, timeout_s=0.2)
        wire.send(answers.of(-1), "BLPOP", "nothing", 0)
        await asyncio.wait_for(wire.closed, 20)
        await eventually(lambda: isinstance(answers.by_call.get(-1), Unavailable))

    uvloop.run(main())


async def test_wire_calls_over_many_ticks_keep_their_order(
    redis_server: Server, redis_url: str
) -> None:
    """The calls of a tick are one write; ticks keep their order, too."""
    wire, answers = await open_wire(redis_server.port), Answers()

    for number in range(300):
        wire.send(answers.of(number), "RPUSH", "list", number)
        if number % 3 == 0:
            await asyncio.sleep(0)
    wire.send(answers.of(-1), "LRANGE", "list", 0, -1)
    await eventually(lambda: -1 in answers.by_call)

    assert answers.by_call[-1] == [b"%d" % number for number in range(300)]
    wire.abort("done")


async def test_wire_large_and_binary_arguments_arrive_whole(
    redis_server: Server, redis_url: str
) -> None:
    """Bytes are bytes, whatever they look like on the wire."""
    wire, answers = await open_wire(redis_server.port), Answers()
    values = [b"", b"\r\n$3\r\nx\r\n", bytes(range(256)), b"x" * 3_000_000, "näive 🙂".encode()]

    for number, value in enumerate(values):
        wire.send(answers.of(number), "ECHO", value)
    await eventually(lambda: len(answers.by_call) == len(values))

    assert list(answers.by_call.values()) == values
    wire.abort("done")


async def test_wire_error_reply_is_an_answer_like_others(
    redis_server: Server, redis_url: str
) -> None:
    """A refused call does not affect others."""
    wire, answers = await open_wire(redis_server.port), Answers()

    wire.send(answers.of(1), "NOSUCHCOMMAND")
    wire.send(answers.of(2), "PING")
    await eventually(lambda: len(answers.by_call) == 2)

    assert isinstance(answers.by_call[1], Exception)
    assert answers.by_call[2] == b"PONG"
    assert wire.is_open
    wire.abort("done")


# connections that break


def assert_all_unknown(answers: Answers, count: int) -> None:
    """Every call got the error that its outcome is unknown."""
    assert len(answers.by_call) == count
    for reply in answers.by_call.values():
        assert isinstance(reply, Unavailable)


async def test_wire_without_answer_in_time_closes_and_fails_everything(
    scripted: Callable[[Script], Awaitable[int]],
) -> None:
    """A call that hangs is found by its deadline, and the connection is never used again."""

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    wire, answers = await open_wire(await scripted(silent), timeout_s=0.1), Answers()
    started = time.monotonic()
    for number in range(5):
        wire.send(answers.of(number), "PING")

    await eventually(lambda: len(answers.by_call) == 5)

    assert time.monotonic() - started >= 0.1, "it was not given its time"
    assert_all_unknown(answers, 5)
    assert "no response within 0.1 s" in str(answers.by_call[0])
    assert not wire.is_open
    assert wire.closed.done()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_wire_of_a_process_that_stood_still_does_not_hold_that_against_redis(
    run: Callable[..., None],
) -> None:
    """After a pause of the process, pending calls are sent with their whole timeout."""

    async def pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(b"+PONG\r\n" * data.count(b"PING"))
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(pong, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            wire, answers = await open_wire(port, timeout_s=0.2), Answers()
            for number in range(3):
                wire.send(answers.of(number), "PING")
            time.sleep(0.5)  # as of a process that is stopped, or gets no processor

            await eventually(lambda: len(answers.by_call) == 3)

            assert answers.by_call == dict.fromkeys(range(3), b"PONG")
            wire.abort("done")
            await wire.closed

    run(main())


async def test_wire_late_answer_reaches_nobody(
    scripted: Callable[[Script], Awaitable[int]],
) -> None:
    """An answer that comes after its deadline must not be taken for that of the next call."""
    may_answer = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        await may_answer.wait()
        writer.write(b"+LATE\r\n" * 3)

    wire, answers = await open_wire(await scripted(late), timeout_s=0.05), Answers()
    wire.send(answers.of(1), "PING")
    await eventually(lambda: answers.by_call)

    may_answer.set()
    wire.send(answers.of(2), "PING")
    await eventually(lambda: len(answers.by_call) == 2)

    assert_all_unknown(answers, 2)


@pytest.mark.parametrize(
    "torn",
    [b"", b"+PO", b"$10\r\nhalf", b"*3\r\n:1\r\n:2\r\n", b"+PONG\r\n$-"],
)
async def test_wire_torn_reply_fails_what_is_open(
    scripted: Callable[[Script], Awaitable[int]], torn: bytes
) -> None:
    """Half an answer is none; those before it stand."""

    async def tear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(torn)
        await writer.drain()
        writer.close()

    wire, answers = await open_wire(await scripted(tear)), Answers()
    for number in range(3):
        wire.send(answers.of(number), "PING")

    await eventually(lambda: len(answers.by_call) == 3)

    whole = int(torn.startswith(b"+PONG\r\n"))
    for number, reply in answers.by_call.items():
        assert reply == b"PONG" if number < whole else isinstance(reply, Unavailable)
    await asyncio.wait_for(wire.closed, 20)


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02", b"?x\r\n"])
async def test_wire_that_meets_something_else_closes(
    scripted: Callable[[Script], Awaitable[int]], junk: bytes
) -> None:
    """A port with another protocol is distinguished from Redis."""

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(junk)
        await reader.read()

    wire, answers = await open_wire(await scripted(other)), Answers()
    wire.send(answers.of(1), "PING")

    await eventually(lambda: answers.by_call)

    assert_all_unknown(answers, 1)
    assert "invalid reply" in str(answers.by_call[1])


async def test_wire_answer_that_nobody_asked_for_closes(
    scripted: Callable[[Script], Awaitable[int]],
) -> None:
    """One answer too many means that every later one would go to the wrong call."""

    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"+ONE\r\n+TWO\r\n")
        await reader.read()

    wire, answers = await open_wire(await scripted(chatty)), Answers()
    wire.send(answers.of(1), "PING")

    await asyncio.wait_for(wire.closed, 20)

    assert answers.by_call == {1: b"ONE"}


async def test_wire_that_is_closed_answers_later_calls_itself(
    redis_server: Server, redis_url: str
) -> None:
    """Never before `send` has returned, so that callers need no second way."""
    wire, answers = await open_wire(redis_server.port), Answers()
    wire.send(answers.of(1), "PING")
    wire.abort("this process is stopping")

    wire.send(answers.of(2), "PING")
    assert 2 not in answers.by_call
    await eventually(lambda: len(answers.by_call) == 2)

    assert_all_unknown(answers, 2)
    assert "this process is stopping" in str(answers.by_call[2])


# callers that go away


async def test_calls_cancelled_at_random_never_get_another_s_answer(redis_url: str) -> None:
    """A canceled caller does not shift the order of replies (CVE-2023-28858)."""
    chance = random.Random(7)  # a test that can be repeated

    async def ask(hot: HotClient, number: int) -> Any:
        return await hot.call("ECHO", f"value-{number}")

    async with open_hot(patient(redis_url)) as hot:
        tasks: list[asyncio.Task[Any]] = []
        for number in range(1_000):
            tasks.append(asyncio.create_task(ask(hot, number)))
            if chance.random() < 0.1:
                await asyncio.sleep(0)
            if chance.random() < 0.6:
                chance.choice(tasks[-40:]).cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)

    cancelled = 0
    for number, answer in enumerate(answers):
        if isinstance(answer, asyncio.CancelledError):
            cancelled += 1
        else:
            assert answer == b"value-%d" % number
    assert 100 < cancelled < 900


async def test_calls_through_a_link_that_is_torn_again_and_again_are_never_mixed_up(
    redis_server: Server, redis_url: str
) -> None:
    """After each tear a new connection; what is answered is answered right."""
    async with (
        TcpProxy(redis_server.port) as proxy,
        open_hot(patient(f"redis://127.0.0.1:{proxy.port}/0")) as hot,
    ):
        right = torn = 0
        for turn in range(10):
            await eventually(lambda: hot.is_up)
            proxy.tear(after_bytes=200 + 37 * turn)
            calls = [hot.call("ECHO", f"t{turn}-{number}") for number in range(50)]
            for number, answer in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
                if isinstance(answer, Unavailable):
                    torn += 1
                else:
                    assert answer == b"t%d-%d" % (turn, number)
                    right += 1
            proxy.heal()

    assert right > 0
    assert torn > 0
