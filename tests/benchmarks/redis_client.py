"""Client CPU of a script call: redis-py compared with the server's own ordered connection.

    python -m tests.benchmarks.redis_client [--runs 3] [--out F.json]

Both make the same calls on the same Redis, with the same number in flight, and await the replies:
`commit_messages.lua` with batches of new messages in 200 direct chats. The calls are recorded
from
`GroupCommit` beforehand. Redis has one core, this process the other. Prints the client's CPU time
per call; a gateway cannot use that time for its sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import click
import redis.asyncio
import redis.exceptions
import uvloop
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chatserver import config
from chatserver.dev.servers import HOST, redis_launch
from chatserver.domain.ids import GatewayId, MidSource, Ref, UserId, direct_chat_id
from chatserver.domain.messages import Audience, PendingDraft, compute_digest
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.group_commit import GroupCommit
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.pipelined_connection import OnReply, PipelinedConnection, Reply
from chatserver.hot.redis.single_server import SingleClient
from chatserver.loadtest import machine
from chatserver.loadtest.bench.server_stack import find_free_port, run_server
from chatserver.protocol import codec
from tests.support.constants import constants

_CHATS = 200
_BODY = "x" * 90
_MESSAGES = 24_000  # in one measurement
_BATCHES = (1, 4, 16, 64)

Arguments = tuple[Any, ...]
Call = Callable[[Arguments], Awaitable[Any]]


class Recorder(SingleClient):
    """A client of the hot tier that records the calls of `GroupCommit` instead of sending them."""

    def __init__(self, hot: HotClient, settings: config.Redis) -> None:
        super().__init__(settings)
        self.epochs = hot.epochs
        self.recorded: list[Arguments] = []

    def send(self, on_reply: OnReply, *args: Any) -> None:
        self.recorded.append(args)
        asyncio.get_running_loop().call_soon(on_reply, redis.exceptions.ConnectionError("recorded"))


class IgnoringOwner:
    """An owner of drafts that ignores their outcome."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None


class Drafts:
    """An endless source of new drafts in open direct chats."""

    def __init__(self, audiences: list[Audience]) -> None:
        self._audiences = audiences
        self._mids = MidSource()

    def __iter__(self) -> Iterator[tuple[PendingDraft, Audience]]:
        number = 0
        owner: Any = IgnoringOwner()
        while True:
            audience = self._audiences[number % len(self._audiences)]
            sender, ref, mid = audience.inline_users[0], Ref(f"{number:010}"), self._mids.next()
            tail = codec.encode_message_tail(audience.chat, mid, sender, ref, "text", _BODY, None)
            digest = compute_digest("text", _BODY, None)
            draft = PendingDraft(
                audience.chat, sender, ref, mid, digest, tail, number, False, owner, owner
            )
            yield draft, audience
            number += 1


async def open_chats(hot: HotClient) -> list[Audience]:
    """Open direct chats and return their audiences."""

    async def never(_: str) -> None:
        raise AssertionError("the chats are open")

    writer, audiences = HotChatWriter(hot), Audiences(hot, never)
    found = []
    for number in range(_CHATS):
        users = (UserId(f"s{number}"), UserId(f"r{number}"))
        chat = direct_chat_id(*users)
        members = dict.fromkeys(users, ("member", 1))
        await writer.open_chat(chat, "direct", None, 1, members, (0, 0), ())
        found.append(await audiences.get(chat))
    return found


async def record_calls(hot: HotClient, audiences: list[Audience], size: int) -> list[Arguments]:
    """Return the calls of `GroupCommit` with `size` messages in each."""
    recorder = Recorder(hot, hot.settings)
    with constants({"chatserver.hot.chats.group_commit.BATCH_MAX": size}):
        commit = GroupCommit(recorder, 0, GatewayId("benchmark"))
    drafts = iter(Drafts(audiences))
    for _ in range(_MESSAGES // size):
        for _ in range(size):
            commit.submit(*next(drafts))
        for _ in range(3):  # the commit, its reply, and the tasks that the reply schedules
            await asyncio.sleep(0)
    assert len(recorder.recorded) == _MESSAGES // size
    return recorder.recorded


async def measure(
    call: Call, calls: list[Arguments], redis_pid: int, *, in_flight: int
) -> dict[str, float]:
    """Make all calls, `in_flight` at a time; return the cost per call on both sides."""
    waiting = iter(calls)

    async def caller() -> None:
        for arguments in waiting:
            reply = await call(arguments)
            if reply[0] != 1:
                raise RuntimeError(f"commit_messages.lua returned {reply[:8]!r}")

    gc.collect()
    gc.freeze()  # the recorded calls are many objects that a gateway would not have
    cpu, redis_cpu, begin = time.process_time(), machine.read_cpu_s(redis_pid), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    cpu, redis_cpu = time.process_time() - cpu, machine.read_cpu_s(redis_pid) - redis_cpu
    return {
        "calls_per_second": round(len(calls) / (time.perf_counter() - begin)),
        "client_us_per_call": round(cpu / len(calls) * 1e6, 1),
        "redis_us_per_call": round(redis_cpu / len(calls) * 1e6, 1),
    }


@contextlib.asynccontextmanager
async def open_redis_py(port: int) -> AsyncIterator[Call]:
    """Call through redis-py with its default options, but without retries."""
    retry = Retry(NoBackoff(), 0)
    client = redis.asyncio.Redis(host=HOST, port=port, retry=retry, socket_timeout=5, protocol=2)

    async def call(arguments: Arguments) -> Any:
        return await client.evalsha(*arguments[1:])

    try:
        yield call
    finally:
        await client.aclose()


@contextlib.asynccontextmanager
async def open_connection(port: int) -> AsyncIterator[Call]:
    """Call through `PipelinedConnection`, with a future as in `HotClient.call`."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(
        lambda: PipelinedConnection("benchmark", 5.0), HOST, port
    )

    async def call(arguments: Arguments) -> Any:
        future: asyncio.Future[Reply] = loop.create_future()
        wire.send(future.set_result, *arguments)
        return await future

    try:
        yield call
    finally:
        wire.abort("the benchmark is over")


async def compare(port: int, redis_pid: int) -> dict[str, dict[str, float]]:
    """Measure both clients at each batch size, each time on an empty Redis."""
    found: dict[str, dict[str, float]] = {}
    settings = config.Redis(url=f"redis://{HOST}:{port}/0", backlog_max=100_000_000)
    for size in _BATCHES:
        for in_flight in (1, 2):
            for name, opened in (("redis-py", open_redis_py), ("wire", open_connection)):
                async with redis.asyncio.Redis(host=HOST, port=port) as admin:
                    await admin.flushall()
                async with open_hot(settings) as hot:
                    calls = await record_calls(hot, await open_chats(hot), size)
                async with opened(port) as call:
                    key = f"{name}, batch {size}, {in_flight} in flight"
                    found[key] = await measure(call, calls, redis_pid, in_flight=in_flight)
    return found


@click.command()
@click.option("--runs", default=3, show_default=True)
@click.option("--server-core", default=0, show_default=True)
@click.option("--load-core", default=1, show_default=True)
@click.option("--out", type=Path, help="Write the medians to this file.")
def main(runs: int, server_core: int, load_core: int, out: Path | None) -> None:
    """Compare the cost of a script call through redis-py and through `PipelinedConnection`."""
    os.sched_setaffinity(0, {load_core})
    found: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="chatserver-load-") as folder:
        launch = redis_launch(Path(folder), find_free_port(), appendonly="no")
        with run_server(launch, server_core) as server:
            assert server.process is not None
            for _ in range(runs):
                found.append(uvloop.run(compare(server.port, server.process.pid)))
    medians = {
        name: {key: statistics.median(run[name][key] for run in found) for key in found[0][name]}
        for name in found[0]
    }
    for name, figures in medians.items():
        click.echo(f"{name:<34} " + "  ".join(f"{k} {v:>9,}" for k, v in figures.items()))
    if out is not None:
        out.write_text(
            json.dumps({"machine": machine.describe_machine(), "medians": medians}, indent=2)
        )


if __name__ == "__main__":
    main()
