"""The pipelined connection: replies are matched to calls by their order."""

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
from chatserver.hot.redis.pipelined_connection import PipelinedConnection, Reply
from chatserver.hot.redis.scripts import Packed
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import Server, eventually
from tests.support.servers.tcp_proxy import TcpProxy


class Answers:
    """Records the reply to each call, and checks that there is only one."""

    def __init__(self) -> None:
        self.by_call: dict[int, Reply] = {}

    def of(self, number: int) -> Callable[[Reply], None]:
        """Return the callback of call `number`."""

        def on_reply(reply: Reply) -> None:
            assert number not in self.by_call, f"call {number} got two replies"
            self.by_call[number] = reply

        return on_reply


async def open_connection(port: int, timeout_s: float = 60.0) -> PipelinedConnection:
    """Connect to a port of this machine."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(
        lambda: PipelinedConnection("test", timeout_s), "127.0.0.1", port
    )
    return wire


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def scripted() -> AsyncIterator[Callable[[Script], Awaitable[int]]]:
    """Return a function that starts a server with scripted replies and returns its port."""
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


async def test_connection_ten_thousand_pipelined_calls_get_replies_in_order(
    redis_server: Server, redis_url: str
) -> None:
    """Each call gets its own reply, and Redis runs the calls in order."""
    wire, answers = await open_connection(redis_server.port), Answers()

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


def test_connection_on_uvloop_behaves_the_same(redis_server: Server, redis_url: str) -> None:
    """Production runs on uvloop, which has its own transports."""

    async def main() -> None:
        wire, answers = await open_connection(redis_server.port), Answers()
        for number in range(1_000):
            wire.send(answers.of(number), "ECHO", f"e{number}")
        await eventually(lambda: len(answers.by_call) == 1_000)
        assert list(answers.by_call.values()) == [b"e%d" % number for number in range(1_000)]
        wire.abort("done")
        wire = await open_connection(redis_server.port, timeout_s=0.2)
        wire.send(answers.of(-1), "BLPOP", "nothing", 0)
        await asyncio.wait_for(wire.closed, 20)
        await eventually(lambda: isinstance(answers.by_call.get(-1), Unavailable))

    uvloop.run(main())


class RecordingTransport(asyncio.Transport):
    """Records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        """Do nothing."""


async def test_connection_writes_the_calls_of_a_tick_once() -> None:
    """Each write is a system call. A commit is written at once, with the calls before it."""
    transport, wire = RecordingTransport(), PipelinedConnection("test", 60.0)
    wire.connection_made(transport)
    ping = b"*1\r\n$4\r\nPING\r\n"

    for _ in range(3):
        wire.send(lambda _: None, "PING")
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [ping * 3]
    wire.send(lambda _: None, "PING")
    wire.send(lambda _: None, Packed(ping))
    assert transport.written[1:] == [ping * 2]
    wire.send(lambda _: None, "PING")
    wire.abort("done")

    assert transport.written[2:] == [ping]
    wire.connection_lost(None)


async def test_connection_calls_over_many_ticks_keep_their_order(
    redis_server: Server, redis_url: str
) -> None:
    """The calls of a tick are one write; the writes keep their order."""
    wire, answers = await open_connection(redis_server.port), Answers()

    for number in range(300):
        wire.send(answers.of(number), "RPUSH", "list", number)
        if number % 3 == 0:
            await asyncio.sleep(0)
    wire.send(answers.of(-1), "LRANGE", "list", 0, -1)
    await eventually(lambda: -1 in answers.by_call)

    assert answers.by_call[-1] == [b"%d" % number for number in range(300)]
    wire.abort("done")


async def test_connection_large_and_binary_arguments_arrive_unchanged(
    redis_server: Server, redis_url: str
) -> None:
    """This includes bytes that look like protocol syntax."""
    wire, answers = await open_connection(redis_server.port), Answers()
    values = [b"", b"\r\n$3\r\nx\r\n", bytes(range(256)), b"x" * 3_000_000, "näive 🙂".encode()]

    for number, value in enumerate(values):
        wire.send(answers.of(number), "ECHO", value)
    await eventually(lambda: len(answers.by_call) == len(values))

    assert list(answers.by_call.values()) == values
    wire.abort("done")


async def test_connection_error_reply_affects_its_call_only(
    redis_server: Server, redis_url: str
) -> None:
    """A refused call does not affect others."""
    wire, answers = await open_connection(redis_server.port), Answers()

    wire.send(answers.of(1), "NOSUCHCOMMAND")
    wire.send(answers.of(2), "PING")
    await eventually(lambda: len(answers.by_call) == 2)

    assert isinstance(answers.by_call[1], Exception)
    assert answers.by_call[2] == b"PONG"
    assert wire.is_open
    wire.abort("done")


# broken connections


def assert_all_unknown(answers: Answers, count: int) -> None:
    """Check that every call failed with an unknown outcome."""
    assert len(answers.by_call) == count
    for reply in answers.by_call.values():
        assert isinstance(reply, Unavailable)


async def test_connection_without_reply_at_the_deadline_closes_and_fails_all_calls(
    scripted: Callable[[Script], Awaitable[int]],
) -> None:
    """The connection is not used again."""

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    wire, answers = await open_connection(await scripted(silent), timeout_s=0.1), Answers()
    started = time.monotonic()
    for number in range(5):
        wire.send(answers.of(number), "PING")

    await eventually(lambda: len(answers.by_call) == 5)

    assert time.monotonic() - started >= 0.1, "the call failed before its deadline"
    assert_all_unknown(answers, 5)
    assert "no response within 0.1 s" in str(answers.by_call[0])
    assert not wire.is_open
    assert wire.closed.done()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_connection_of_a_paused_process_does_not_time_out(
    run: Callable[..., None],
) -> None:
    """After a pause of the process, pending calls have their full timeout again."""

    async def pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(b"+PONG\r\n" * data.count(b"PING"))
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(pong, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            wire, answers = await open_connection(port, timeout_s=0.2), Answers()
            for number in range(3):
                wire.send(answers.of(number), "PING")
            time.sleep(0.5)  # as if the process had been stopped

            await eventually(lambda: len(answers.by_call) == 3)

            assert answers.by_call == dict.fromkeys(range(3), b"PONG")
            wire.abort("done")
            await wire.closed

    run(main())


async def test_connection_late_reply_is_dropped(
    scripted: Callable[[Script], Awaitable[int]],
) -> None:
    """A reply after its deadline must not be used for the next call."""
    may_answer = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        await may_answer.wait()
        writer.write(b"+LATE\r\n" * 3)

    wire, answers = await open_connection(await scripted(late), timeout_s=0.05), Answers()
    wire.send(answers.of(1), "PING")
    await eventually(lambda: answers.by_call)

    may_answer.set()
    wire.send(answers.of(2), "PING")
    await eventually(lambda: len(answers.by_call) == 2)

    assert_all_unknown(answers, 2)


@pytest.mark.parametrize(
    "truncated",
    [b"", b"+PO", b"$10\r\nhalf", b"*3\r\n:1\r\n:2\r\n", b"+PONG\r\n$-"],
)
async def test_connection_truncated_reply_fails_pending_calls(
    scripted: Callable[[Script], Awaitable[int]], truncated: bytes
) -> None:
    """Complete replies before it are valid."""

    async def tear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(truncated)
        await writer.drain()
        writer.close()

    wire, answers = await open_connection(await scripted(tear)), Answers()
    for number in range(3):
        wire.send(answers.of(number), "PING")

    await eventually(lambda: len(answers.by_call) == 3)

    complete = int(truncated.startswith(b"+PONG\r\n"))
    for number, reply in answers.by_call.items():
        assert reply == b"PONG" if number < complete else isinstance(reply, Unavailable)
    await asyncio.wait_for(wire.closed, 20)


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02", b"?x\r\n"])
async def test_connection_to_another_protocol_closes(
    scripted: Callable[[Script], Awaitable[int]], junk: bytes
) -> None:
    """A server that is not Redis is detected."""

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(junk)
        await reader.read()

    wire, answers = await open_connection(await scripted(other)), Answers()
    wire.send(answers.of(1), "PING")

    await eventually(lambda: answers.by_call)

    assert_all_unknown(answers, 1)
    assert "invalid reply" in str(answers.by_call[1])


async def test_connection_unexpected_reply_closes(
    scripted: Callable[[Script], Awaitable[int]],
) -> None:
    """After an extra reply, every later one would go to the wrong call."""

    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"+ONE\r\n+TWO\r\n")
        await reader.read()

    wire, answers = await open_connection(await scripted(chatty)), Answers()
    wire.send(answers.of(1), "PING")

    await asyncio.wait_for(wire.closed, 20)

    assert answers.by_call == {1: b"ONE"}


async def test_connection_that_is_closed_fails_later_calls(
    redis_server: Server, redis_url: str
) -> None:
    """The callback is never called before `send` has returned."""
    wire, answers = await open_connection(redis_server.port), Answers()
    wire.send(answers.of(1), "PING")
    wire.abort("this process is stopping")

    wire.send(answers.of(2), "PING")
    assert 2 not in answers.by_call
    await eventually(lambda: len(answers.by_call) == 2)

    assert_all_unknown(answers, 2)
    assert "this process is stopping" in str(answers.by_call[2])


# cancelled callers


async def test_calls_canceled_at_random_never_get_the_reply_of_another(redis_url: str) -> None:
    """A canceled caller does not shift the order of replies (CVE-2023-28858)."""
    rng = random.Random(7)

    async def call_echo(hot: HotClient, number: int) -> Any:
        return await hot.call("ECHO", f"value-{number}")

    async with open_hot(redis_settings(redis_url)) as hot:
        tasks: list[asyncio.Task[Any]] = []
        for number in range(1_000):
            tasks.append(asyncio.create_task(call_echo(hot, number)))
            if rng.random() < 0.1:
                await asyncio.sleep(0)
            if rng.random() < 0.6:
                rng.choice(tasks[-40:]).cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)

    cancelled = 0
    for number, answer in enumerate(answers):
        if isinstance(answer, asyncio.CancelledError):
            cancelled += 1
        else:
            assert answer == b"value-%d" % number
    assert 100 < cancelled < 900


async def test_calls_over_a_connection_that_breaks_repeatedly_get_their_own_replies(
    redis_server: Server, redis_url: str
) -> None:
    """A new connection follows each break, and every reply is for its call."""
    async with (
        TcpProxy(redis_server.port) as proxy,
        open_hot(redis_settings(f"redis://127.0.0.1:{proxy.port}/0")) as hot,
    ):
        answered = failed = 0
        for attempt in range(10):
            await eventually(lambda: hot.is_up)
            proxy.tear(after_bytes=200 + 37 * attempt)
            calls = [hot.call("ECHO", f"t{attempt}-{number}") for number in range(50)]
            for number, answer in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
                if isinstance(answer, Unavailable):
                    failed += 1
                else:
                    assert answer == b"t%d-%d" % (attempt, number)
                    answered += 1
            proxy.end_faults()

    assert answered > 0
    assert failed > 0
