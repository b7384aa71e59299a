"""Answers the gateways' calls to the warm tier; see `chatserver.hot.rpc`.

At most `CALLS_IN_FLIGHT_MAX` at once; more wait in the stream, and a call whose caller has given up
is skipped. Every operation is idempotent, so a call that dies with this process is made again. One
that a worker took and cannot begin because it is stopped is answered so, at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import assert_never

import msgspec
import structlog

from chatserver.domain.ids import ChatId, Ref, Seq, UserId
from chatserver.errors import ChatError, Unavailable
from chatserver.hot import rpc
from chatserver.hot.files import encode_file
from chatserver.telemetry.failpoints import failpoint
from workers.companions import answer_of_companions
from workers.parts import WorkerParts

log = structlog.get_logger()

CALLS_IN_FLIGHT_MAX = 64
_encode = msgspec.msgpack.Encoder().encode


class RpcWorker:
    """One consumer of the calls."""

    def __init__(
        self,
        parts: WorkerParts,
        name: str,
        queue: rpc.CallQueue | None = None,
        in_flight_max: int = CALLS_IN_FLIGHT_MAX,
    ) -> None:
        self._parts = parts
        self._queue = queue or rpc.CallQueue(parts.hot, name)
        self._slots = asyncio.Semaphore(in_flight_max)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer calls until cancelled; what was taken is answered first.

        Raises:
            Unavailable: Redis went away.
        """
        try:
            async with contextlib.aclosing(self._queue.iter_calls()) as calls:
                async for call in calls:
                    await self._take(call)
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=2)

    async def _take(self, call: rpc.Call) -> None:
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            self._queue.fail(call, rpc.stopping())
            raise
        task = asyncio.create_task(self._answer(call), name=f"call-{call.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: rpc.Call) -> None:
        try:
            left_s = call.until_ms / 1000 - self._parts.clock.time()
            if left_s <= 0:
                return
            async with asyncio.timeout(left_s):
                payload = await self._perform(call.operation)
            failpoint("rpc.before_answer")
            self._queue.answer(call, payload)
        except TimeoutError:
            self._queue.fail(call, Unavailable("the warm tier is too slow"))
        except ChatError as exc:
            if exc.code == "internal":
                log.error("rpc.failed", operation=type(call.operation).__name__, error=exc.message)
            self._queue.fail(call, exc)
        except Exception:
            log.exception("rpc.crashed", operation=type(call.operation).__name__)
            self._queue.fail(call, Unavailable("the warm tier failed"))
        finally:
            self._slots.release()

    async def _perform(self, operation: rpc.AnyOperation) -> bytes:
        opener = self._parts.opener
        match operation:
            case rpc.LoadUser():
                await opener.load_user(UserId(operation.user))
                return b""
            case rpc.LoadKeys():
                return await self._parts.key_fetcher.get()
            case rpc.LoadChat():
                await opener.load_chat(ChatId(operation.chat))
                return b""
            case rpc.OpenDirect():
                user, other = UserId(operation.user), UserId(operation.other)
                return _encode(await opener.open_direct(user, other))
            case rpc.CreateChat():
                members = [UserId(member) for member in operation.members]
                info = await opener.create_chat(
                    UserId(operation.user), Ref(operation.ref), members, operation.name
                )
                if info.large:
                    # No entry of it comes by an inbox, so its members have to be told.
                    await self._parts.turnover.finish(ChatId(info.chat))
                return _encode(info)
            case rpc.ChangeChat():
                user = UserId(operation.user)
                return _encode(await self._parts.membership.change(user, operation.change))
            case rpc.ReadHistory():
                run = await self._parts.older.read_run(
                    ChatId(operation.chat),
                    operation.before,
                    operation.after,
                    operation.limit,
                    operation.ts,
                )
                return _encode(rpc.WarmPage(run.messages, run.tier))
            case rpc.Block():
                user, other = UserId(operation.user), UserId(operation.other)
                moderation = self._parts.moderation
                change = moderation.block if operation.is_blocked else moderation.unblock
                await change(user, other)
                return b""
            case rpc.ListBlocks():
                user, moderation = UserId(operation.user), self._parts.moderation
                page = await moderation.list_blocks(user, operation.after, operation.limit)
                return _encode(rpc.BlocksPage(*page))
            case rpc.Report():
                await self._parts.moderation.report(
                    UserId(operation.user),
                    ChatId(operation.chat),
                    Seq(operation.seq),
                    operation.reason,
                )
                return b""
            case (
                rpc.ListCompanions()
                | rpc.BeginSession()
                | rpc.GetSession()
                | rpc.EndSession()
                | rpc.MoveSession()
                | rpc.ListSessions()
            ):
                return _encode(await answer_of_companions(self._parts, operation))
            case rpc.Ask():
                raise Unavailable("this worker does not ask webhooks")
            case rpc.LoadFile():
                file = await self._parts.files.find_file(operation.file)
                return b"" if file is None else encode_file(file)
            case _ as never:
                assert_never(never)
