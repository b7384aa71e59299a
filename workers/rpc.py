"""RPC worker: serves the gateways' calls to the warm tier; see `chatserver.hot.bus.rpc`.

At most `CALLS_IN_FLIGHT_MAX` calls run at a time, and at most `CALLS_OF_KEY_MAX` with one queue
key: of a user, or of all new accounts of a network. Other calls wait in this process. Keys are
served round-robin, and a call whose caller has timed out is skipped. At most `WAITING_OF_KEY_MAX`
calls per key wait; further calls fail with `rate_limited`. With `TAKEN_MAX` calls running or
waiting, further calls fail with `overloaded`.

Calls that protect a user, such as a block, have their own slots and are taken above `TAKEN_MAX`.
Calls of new accounts have few slots, unless the worker is almost idle.

Bulk calls (a new group or an invite with at least `BULK_USERS_MIN` users) run one at a time. After
a bulk call, the next one waits for as long as the call took, but at most `BULK_PAUSE_S_MAX`. At
most `BULK_WAITING_MAX` bulk calls wait; further bulk calls fail with `rate_limited`.

Operations are idempotent, so a call that is lost with this process can be retried. On shutdown,
calls that have not started are rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import assert_never

import msgspec
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.access.caller import is_network_key
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import ChatError, Overloaded, RateLimited, Unavailable
from chatserver.hot.bus import rpc
from chatserver.hot.bus.rpc_queue import (
    UNKNOWN_CALL,
    ReceivedCall,
    RpcQueue,
    make_stopping_error,
)
from chatserver.protocol import codec
from chatserver.protocol.request_costs import BULK_USERS_MIN
from chatserver.requests.registry import list_operations, read_call
from chatserver.service.fair_semaphore import FairSemaphore
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.logs import RepeatLimit

log = structlog.get_logger()

CALLS_IN_FLIGHT_MAX = 32
PROTECTIVE_IN_FLIGHT_MAX = 16
PROTECTIVE_WAITING_MAX = 1_000
CALLS_OF_KEY_MAX = 4
CALLS_OF_NEW_ACCOUNTS_MAX = 2  # while more than `IDLE_CALLS_MAX` calls run
IDLE_CALLS_MAX = 1
WAITING_OF_KEY_MAX = 128
WAITING_OF_NETWORK_MAX = 512  # calls of new accounts, of one network and of all of them
BULK_IN_FLIGHT_MAX = 1
BULK_WAITING_MAX = 4
BULK_PAUSE_S_MAX = 1.0
TAKEN_MAX = 2_000
TOO_MANY = "too many calls are waiting for a worker; try again"
_encode = msgspec.msgpack.Encoder().encode


def _is_bulk(operation: rpc.AnyOperation) -> bool:
    match operation:
        case rpc.CreateGroupChat():
            return len(operation.members) >= BULK_USERS_MIN
        case rpc.ForwardFrame():
            return operation.priority == "bulk"
        case _:
            return False


class RpcWorker:
    """One consumer of the Redis stream of calls."""

    def __init__(
        self,
        container: StorageContainer,
        name: str,
        queue: RpcQueue | None = None,
        in_flight_max: int = CALLS_IN_FLIGHT_MAX,
        of_key_max: int = CALLS_OF_KEY_MAX,
    ) -> None:
        self._container = container
        list_operations()  # import all declarations before the first call
        self._refusals = RepeatLimit()
        self._queue = queue or RpcQueue(hot=container.hot, consumer=name, clock=container.clock)
        self._slots = FairSemaphore(
            total_max=in_flight_max,
            user_max=of_key_max,
            waiting_max=WAITING_OF_KEY_MAX,
            requests="calls",
        )
        self._new_account_slots = FairSemaphore(
            total_max=CALLS_OF_NEW_ACCOUNTS_MAX,
            user_max=1,
            waiting_max=WAITING_OF_NETWORK_MAX,
            requests="calls of new accounts",
            all_waiting_max=WAITING_OF_NETWORK_MAX,
            users="network",
        )
        self._protective_slots = FairSemaphore(
            total_max=PROTECTIVE_IN_FLIGHT_MAX,
            user_max=CALLS_OF_KEY_MAX,
            waiting_max=WAITING_OF_KEY_MAX,
            requests="calls that protect users",
            all_waiting_max=PROTECTIVE_WAITING_MAX,
        )
        self._bulk_slots = FairSemaphore(
            total_max=BULK_IN_FLIGHT_MAX,
            user_max=1,
            waiting_max=WAITING_OF_KEY_MAX,
            requests="calls about many users",
            all_waiting_max=BULK_WAITING_MAX,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued: set[asyncio.Task[None]] = set()  # waiting tasks, cancelled on shutdown

    async def run(self) -> None:
        """Serve calls until cancelled; then wait up to 2 s for running calls.

        Raises:
            Unavailable: Redis is unavailable.
        """
        try:
            async with contextlib.aclosing(self._queue.iter_calls()) as calls:
                async for received in calls:
                    self._start_call(received)
        finally:
            await asyncio.sleep(0)  # let new tasks start, so that they can respond when cancelled
            for task in self._queued:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=2)

    def _start_call(self, received: ReceivedCall) -> None:
        call = received.call
        if len(self._tasks) >= TAKEN_MAX and not rpc.is_protective(call.operation):
            self._queue.fail(call, Overloaded(TOO_MANY, retry_after_ms=1000))
            return
        task = asyncio.create_task(self._run_call(received), name=f"call-{call.id}")
        self._tasks.add(task)
        self._queued.add(task)
        task.add_done_callback(self._queued.discard)
        task.add_done_callback(self._tasks.discard)

    async def _run_call(self, received: ReceivedCall) -> None:
        call = received.call
        slots = self._choose_slots(call)
        try:
            async with slots.hold(call.queue_key):
                if (task := asyncio.current_task()) is not None:
                    self._queued.discard(task)
                started = self._container.clock.monotonic()
                await self._respond(received)
                if slots is self._bulk_slots:
                    await self._pause(self._container.clock.monotonic() - started)
        except RateLimited as exc:
            self._queue.fail(call, exc)
        except asyncio.CancelledError:
            self._queue.fail(call, make_stopping_error())
            raise

    def _choose_slots(self, call: rpc.Call) -> FairSemaphore:
        if rpc.is_protective(call.operation):
            return self._protective_slots
        if _is_bulk(call.operation):
            return self._bulk_slots
        is_busy = self._slots.held_count > IDLE_CALLS_MAX
        is_new_account = is_network_key(call.queue_key)
        return self._new_account_slots if is_new_account and is_busy else self._slots

    async def _pause(self, took_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._queued.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(min(took_s, BULK_PAUSE_S_MAX))

    async def _respond(self, received: ReceivedCall) -> None:
        call = received.call
        try:
            left_s = received.until_s - self._container.clock.monotonic()
            if left_s <= 0:
                self._queue.drop(received)
                return
            async with asyncio.timeout(left_s):
                payload = await self._perform(call.operation)
            failpoint("rpc.before_answer")
            self._queue.send_result(call, payload)
        except TimeoutError:
            self._queue.fail(call, Unavailable("the warm tier did not respond in time; try again"))
        except ChatError as exc:
            if exc.code == "internal":
                log.error("rpc.failed", operation=rpc.get_name(call.operation), error=exc.message)
            elif exc.public:  # the gateway and its client do not receive this text
                operation = rpc.get_name(call.operation)
                if self._refusals.is_due(operation):
                    log.warning("rpc.refused", operation=operation, error=exc.message)
            self._queue.fail(call, exc)
        except msgspec.MsgspecError as exc:
            log.error("rpc.call_rejected", operation=rpc.get_name(call.operation), error=str(exc))
            self._queue.fail(call, Unavailable(UNKNOWN_CALL))
        except Exception:
            log.exception("rpc.crashed", operation=rpc.get_name(call.operation))
            self._queue.fail(call, Unavailable("the worker failed; try again"))

    async def _perform(self, operation: rpc.AnyOperation) -> bytes:
        match operation:
            case rpc.LoadUser():
                await self._container.user_loader.load_user(UserId(operation.user))
                return b""
            case rpc.LoadKeys():
                return await self._container.key_fetcher.get()
            case rpc.LoadChat():
                await self._container.chat_loader.load_chat(ChatId(operation.chat))
                return b""
            case rpc.OpenDirectChat():
                user, other = UserId(operation.user), UserId(operation.other)
                creator = self._container.chat_creator
                return _encode(await creator.open_direct(user, other, is_host=operation.is_host))
            case rpc.CreateGroupChat():
                members = [UserId(member) for member in operation.members]
                info = await self._container.chat_creator.create_chat(
                    UserId(operation.user),
                    Ref(operation.ref),
                    members,
                    operation.name,
                    is_host=operation.is_host,
                )
                return _encode(info)
            case rpc.ForwardFrame():
                declared, frame = read_call(operation)
                if declared.handler is None or declared.runs_in != "worker":
                    raise Unavailable(UNKNOWN_CALL)
                user = UserId(operation.user)
                return codec.encode(await declared.handler(self._container, user, frame))
            case rpc.ReadHistory():
                history = await self._container.older_tiers.read_run(
                    ChatId(operation.chat),
                    operation.before,
                    operation.after,
                    operation.limit,
                    operation.ts,
                )
                return _encode(history)
            case rpc.FindPeriods():
                memberships = self._container.memberships
                return _encode(await memberships.find_periods(operation.chat, operation.user))
            case rpc.CallBeforeSend():
                raise Unavailable("this worker does not call webhooks")
            case rpc.LoadFile():
                return await self._container.load_file(operation.file)
            case _ as never:
                assert_never(never)


async def run_rpc(container: StorageContainer, owner: str) -> None:
    """Serve calls until cancelled; see `RpcWorker`."""
    await RpcWorker(container, owner).run()
