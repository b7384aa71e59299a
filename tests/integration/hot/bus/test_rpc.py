"""Calls to the warm tier through Redis: each gets one response or fails by its deadline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import structlog

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Ref, UserId
from chatserver.errors import (
    BadRequest,
    ChatError,
    Conflict,
    CorruptData,
    LostRace,
    NotFound,
    Overloaded,
    RateLimited,
    TooLarge,
    Unavailable,
)
from chatserver.hot.bus import rpc, rpc_client
from chatserver.hot.bus.gateway_stream import CallResult, GatewayStream
from chatserver.hot.bus.rpc import Call, HistoryRun
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.bus.rpc_queue import ReceivedCall, RpcQueue
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.protocol import frames
from tests.integration.hot.support import ALICE, BOB, CHAT, cancel_task, redis_settings
from tests.support.servers.processes import StartRedis, eventually, redis_url_of

GATEWAY = GatewayId("gw1")
INFO = frames.ChatInfo(CHAT, "direct", [ALICE, BOB])
_encode = msgspec.msgpack.Encoder().encode

Perform = Callable[[Call, RpcQueue], Awaitable[None]]


class Caller:
    """A gateway: its calls, and the stream from which it reads the responses."""

    def __init__(self, hot: HotClient, timeout_s: float) -> None:
        self.calls = RpcClient(hot, GATEWAY, timeout_s)
        self.answers: list[CallResult] = []
        self._gateway_stream = GatewayStream(hot, GATEWAY)
        self.is_listening = asyncio.Event()

    async def listen(self) -> None:
        """Read responses from the stream until canceled."""
        async for records in self._gateway_stream.iter_records():
            self.is_listening.set()
            for record in records or ():
                assert isinstance(record, CallResult)
                self.answers.append(record)
                self.calls.handle_result(record)


@contextlib.asynccontextmanager
async def open_caller(hot: HotClient, timeout_s: float = 30.0) -> AsyncIterator[Caller]:
    """Start a gateway; yield it once it reads its stream."""
    caller = Caller(hot, timeout_s)
    task = asyncio.create_task(caller.listen())
    try:
        await asyncio.wait_for(caller.is_listening.wait(), 20)
        yield caller
    finally:
        await cancel_task(task)


@contextlib.asynccontextmanager
async def open_worker(hot: HotClient, perform: Perform, name: str = "w1") -> AsyncIterator[None]:
    """Run a worker that performs each call with this function."""
    queue = RpcQueue(hot=hot, consumer=name, clock=SystemClock())

    async def work() -> None:
        async for taken in queue.iter_calls():
            await perform(taken.call, queue)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        await cancel_task(task)


def respond_with(payload: Any) -> Perform:
    """Return a function that responds to every call with this payload."""

    async def perform(call: Call, queue: RpcQueue) -> None:
        queue.send_result(call, _encode(payload))

    return perform


async def test_call_returns_the_response_of_the_worker(hot: HotClient) -> None:
    """Operations and responses pass through Redis unchanged."""
    seen: list[Any] = []

    async def perform(call: Call, queue: RpcQueue) -> None:
        seen.append(call.operation)
        is_page = isinstance(call.operation, rpc.ReadHistory)
        queue.send_result(call, _encode(HistoryRun([]) if is_page else INFO))

    async with open_caller(hot) as caller, open_worker(hot, perform):
        calls = caller.calls
        await calls.load_user(ALICE)
        await calls.load_chat(CHAT)
        assert await calls.open_direct(ALICE, BOB) == INFO
        assert await calls.create_chat(ALICE, Ref("r"), [BOB], "Näme") == INFO
        assert (await calls.read_run(CHAT, 9, None, 50, 12)).messages == []

    assert seen == [
        rpc.LoadUser(ALICE),
        rpc.LoadChat(CHAT),
        rpc.OpenDirectChat(ALICE, BOB),
        rpc.CreateGroupChat(ALICE, "r", [BOB], "Näme"),
        rpc.ReadHistory(CHAT, 9, None, 50, 12),
    ]


async def test_call_for_history_returns_messages(hot: HotClient) -> None:
    """Every field of a message is kept."""
    message = frames.Message(4, 40, CHAT, "m", ALICE, "r", "text", "näive 🙂", reply_to=2)

    async with open_caller(hot) as caller, open_worker(hot, respond_with(HistoryRun([message]))):
        assert (await caller.calls.read_run(CHAT, None, 3, 50, None)).messages == [message]


async def test_concurrent_calls_each_get_their_own_response(hot: HotClient) -> None:
    """Responses may arrive in any order, and many of them in one entry of the gateway stream."""
    held: list[tuple[Call, RpcQueue]] = []

    async def perform(call: Call, queue: RpcQueue) -> None:
        held.append((call, queue))
        if len(held) == 40:
            for each, through in reversed(held):
                assert isinstance(each.operation, rpc.LoadChat)
                info = frames.ChatInfo(each.operation.chat, "group", [])
                through.send_result(each, _encode(info))

    async with open_caller(hot) as caller, open_worker(hot, perform):
        payloads = await asyncio.gather(
            *(caller.calls._call(rpc.LoadChat(f"c{n}")) for n in range(40))
        )

    chats = [msgspec.msgpack.decode(each, type=frames.ChatInfo).chat for each in payloads]
    assert chats == [f"c{n}" for n in range(40)]


@pytest.mark.parametrize(
    "error",
    [
        NotFound("carol: there is no such user"),
        Conflict("chat c1: exists"),
        BadRequest("members: too many"),
        TooLarge("name: too long"),
        RateLimited("too many groups", retry_after_ms=5_000),
        Unavailable("DynamoDB: throttled"),
        Overloaded("too much"),
        CorruptData("directory: row"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_call_that_fails_raises_the_error_of_the_worker(
    hot: HotClient, error: ChatError
) -> None:
    """Type, public message and retry time are those of the worker."""

    async def perform(call: Call, queue: RpcQueue) -> None:
        queue.fail(call, error)

    async with open_caller(hot) as caller, open_worker(hot, perform):
        with pytest.raises(type(error)) as caught:
            await caller.calls.load_chat(CHAT)

    assert type(caught.value) is type(error)
    assert caught.value.message == error.public_message
    assert caught.value.retry_after_ms == error.retry_after_ms


async def test_write_conflict_at_the_worker_is_temporary_at_the_gateway(hot: HotClient) -> None:
    """The client may retry and gets the time to wait."""

    async def perform(call: Call, queue: RpcQueue) -> None:
        queue.fail(call, LostRace("session: changed by a concurrent request; try again"))

    async with open_caller(hot) as caller, open_worker(hot, perform):
        with pytest.raises(Conflict) as caught:
            await caller.calls.load_chat(CHAT)

    assert (caught.value.temporary, caught.value.retry_after_ms) == (True, 100)


async def test_call_without_a_worker_fails_at_its_deadline(hot: HotClient) -> None:
    """The error names the worker to start."""
    async with open_caller(hot, timeout_s=0.1) as caller:
        with pytest.raises(
            Unavailable, match=r"0\.1 s; check that `chatserver worker rpc` is running"
        ):
            await caller.calls.load_chat(CHAT)


async def test_call_answered_too_late_is_dropped(hot: HotClient) -> None:
    """A late result does not disturb later calls."""
    may_answer = asyncio.Event()

    async def perform(call: Call, queue: RpcQueue) -> None:
        assert isinstance(call.operation, rpc.LoadChat)
        if call.operation.chat == "slow":
            await may_answer.wait()
        queue.send_result(call, b"")

    async with open_caller(hot, timeout_s=0.2) as caller, open_worker(hot, perform):
        with pytest.raises(Unavailable):
            await caller.calls.load_chat(ChatId("slow"))
        may_answer.set()
        await eventually(lambda: len(caller.answers) == 1)

        caller.calls._timeout_s = 30.0  # the next call may be slow
        await caller.calls.load_chat(CHAT)


async def test_call_made_before_the_first_worker_is_answered(hot: HotClient) -> None:
    """A gateway may start before the workers."""
    async with open_caller(hot) as caller:
        waiting = asyncio.create_task(caller.calls.load_chat(CHAT))
        await eventually(lambda: hot.call("EXISTS", hot.keys.rpc_calls()))

        async with open_worker(hot, respond_with(None)):
            await asyncio.wait_for(waiting, 20)


async def test_calls_are_performed_by_one_worker_each(hot: HotClient) -> None:
    """Several workers share the calls; none is performed twice."""
    done: list[tuple[str, str]] = []

    def by(name: str) -> Perform:
        async def perform(call: Call, queue: RpcQueue) -> None:
            done.append((name, call.id))
            queue.send_result(call, b"")

        return perform

    async with (
        open_caller(hot) as caller,
        open_worker(hot, by("w1"), "w1"),
        open_worker(hot, by("w2"), "w2"),
    ):
        for _ in range(20):
            await asyncio.gather(*(caller.calls.load_chat(CHAT) for _ in range(5)))

    assert len({call for _, call in done}) == len(done) == 100


async def test_call_that_is_too_old_fails_and_is_not_performed(hot: HotClient) -> None:
    """The caller gets an error at once, and the log names the operation."""
    done: list[str] = []

    async def perform(call: Call, queue: RpcQueue) -> None:
        done.append(call.id)

    async with open_caller(hot, timeout_s=0.01) as caller:
        with pytest.raises(Unavailable):
            await caller.calls.load_chat(CHAT)
        async with open_worker(hot, perform):
            with structlog.testing.capture_logs() as logs:
                await eventually(lambda: caller.answers)

    assert not done
    (answer,) = caller.answers
    assert answer.code == "unavailable" and b"waited too long" in answer.payload
    assert [(each["event"], each["operation"]) for each in logs] == [
        ("rpc.call_expired", "load_chat")
    ]


async def test_calls_beyond_the_limit_are_overloaded_until_others_end(
    hot: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting calls are limited. Ended calls do not count, however they ended."""
    monkeypatch.setattr(rpc_client, "WAITING_MAX", 5)
    async with open_caller(hot, timeout_s=0.3) as caller:
        waiting = [asyncio.create_task(caller.calls.load_chat(CHAT)) for _ in range(5)]
        await asyncio.sleep(0)

        with pytest.raises(Overloaded):
            await caller.calls.load_chat(CHAT)
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, Unavailable)
        with pytest.raises(Unavailable, match="did not respond"):
            await caller.calls.load_chat(CHAT)


async def test_canceled_call_is_not_counted(
    hot: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that ends cancels its calls."""
    monkeypatch.setattr(rpc_client, "WAITING_MAX", 1)
    async with open_caller(hot) as caller:
        first = asyncio.create_task(caller.calls.load_chat(CHAT))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])

        async with open_worker(hot, respond_with(None)):
            await caller.calls.load_chat(CHAT)


async def test_call_while_redis_is_down_fails_at_once(start_redis: StartRedis) -> None:
    """The call was not queued, so it does not wait for its deadline."""
    server = start_redis("no")
    async with open_hot(redis_settings(redis_url_of(server))) as hot:
        calls = RpcClient(hot, GATEWAY, 60.0)
        server.kill()
        await eventually(lambda: not hot.is_up)

        with pytest.raises(Unavailable, match="cannot queue"):
            await asyncio.wait_for(calls.load_chat(CHAT), 20)


async def test_call_that_waits_while_redis_is_restarted_fails_at_once(
    start_redis: StartRedis,
) -> None:
    """The call or its result may be lost, so the caller retries before the deadline."""
    server = start_redis("no")
    async with open_hot(redis_settings(redis_url_of(server))) as hot:
        waiting = asyncio.ensure_future(RpcClient(hot, GATEWAY, 60.0).load_chat(CHAT))
        await eventually(lambda: hot.call("EXISTS", hot.keys.rpc_calls()))

        server.kill()
        server.start()

        with pytest.raises(Unavailable, match="restarted"):
            await asyncio.wait_for(waiting, 30)


async def test_worker_queue_fails_when_redis_goes_down(start_redis: StartRedis) -> None:
    """The worker process then restarts the worker."""
    server = start_redis("no")
    async with open_hot(redis_settings(redis_url_of(server))) as hot:
        calls = RpcQueue(hot=hot, consumer="w1", clock=SystemClock()).iter_calls()
        waiting = asyncio.ensure_future(anext(calls))
        await eventually(lambda: hot.call("EXISTS", hot.keys.rpc_calls()))

        server.kill()

        with pytest.raises(Unavailable, match=f"127.0.0.1:{server.port}"):
            await asyncio.wait_for(waiting, 30)


async def test_worker_queue_fails_when_its_stream_is_lost(hot: HotClient) -> None:
    """The next start creates the consumer group again."""
    calls = RpcQueue(hot=hot, consumer="w1", clock=SystemClock()).iter_calls()
    waiting = asyncio.ensure_future(anext(calls))
    await eventually(lambda: hot.call("EXISTS", hot.keys.rpc_calls()))

    await hot.call("UNLINK", hot.keys.rpc_calls())
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, 30)

    async with open_caller(hot) as caller, open_worker(hot, respond_with(None)):
        await caller.calls.load_user(UserId("alice"))


async def test_calls_are_bounded_in_redis(hot: HotClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers the stream of calls does not grow without limit."""
    monkeypatch.setattr(rpc_client, "CALLS_MAX", 100)
    calls = RpcClient(hot, GATEWAY, 0.01)

    for _ in range(20):
        await asyncio.gather(*(calls.load_chat(CHAT) for _ in range(50)), return_exceptions=True)

    assert await hot.call("XLEN", hot.keys.rpc_calls()) <= 200


@pytest.mark.parametrize("ticks", range(8))
async def test_worker_queue_cancelled_at_any_moment_ends(hot: HotClient, ticks: int) -> None:
    """A stopping worker ends, however busy it is."""
    queue = RpcQueue(hot=hot, consumer="w1", clock=SystemClock())
    taken: list[ReceivedCall] = []

    async def work() -> None:
        async for call in queue.iter_calls():
            taken.append(call)

    task = asyncio.create_task(work())
    await eventually(lambda: hot.call("EXISTS", hot.keys.rpc_calls()))
    calling = asyncio.create_task(RpcClient(hot, GATEWAY, 9).load_chat(CHAT))
    while not taken:
        await asyncio.sleep(0)
    for _ in range(ticks):
        await asyncio.sleep(0)

    task.cancel()
    done, _ = await asyncio.wait([task], timeout=20)
    await cancel_task(task)
    await cancel_task(calling)

    assert done, "the worker did not end after its cancellation"
