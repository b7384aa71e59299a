"""Client side of the gateways' remote procedure calls to warm-tier workers; see `rpc`.

Data: ``{rpc}:calls`` (stream, bounded): calls that `rpc_queue` reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chatserver.domain.ids import ChatId, GatewayId, Ref, UserId, new_id
from chatserver.domain.membership_periods import Periods
from chatserver.errors import ERRORS_BY_CODE, ChatError, CorruptData, Overloaded, Unavailable
from chatserver.hot.bus import rpc
from chatserver.hot.bus.gateway_stream import CallResult
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.replies import translate_reply_error
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as hooks

CALLS_MAX = 10_000
WAITING_MAX = 2_000

# Operations that are accepted even while Redis is full, besides those that protect a user.
_NEEDED_WHEN_FULL = (
    rpc.LoadUser, rpc.LoadKeys, rpc.LoadChat, rpc.LoadFile, rpc.ReadHistory, rpc.FindPeriods,
)  # fmt: skip


class RpcClient:
    """Calls the workers. With `WAITING_MAX` calls pending, a new call raises `Overloaded`.

    Calls that protect a user may be twice as many.
    """

    def __init__(self, hot: HotClient, gateway: GatewayId, timeout_s: float) -> None:
        self._hot = hot
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._waiting: dict[str, asyncio.Future[CallResult]] = {}
        hot.on_epoch.append(self._fail_pending)

    def _fail_pending(self) -> None:
        """Fail all pending calls after an epoch change, because Redis may have lost them."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unavailable("warm tier: Redis was restarted; try again"))

    def handle_result(self, result: CallResult) -> None:
        """Handle a result from the gateway's stream; drop it if no call is pending."""
        future = self._waiting.get(result.call)
        if future is not None and not future.done():
            future.set_result(result)

    async def load_user(self, user: UserId) -> None:
        await self._call(rpc.LoadUser(user))

    async def load_keys(self) -> bytes:
        return await self._call(rpc.LoadKeys())

    async def load_chat(self, chat: ChatId) -> None:
        await self._call(rpc.LoadChat(chat))

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        payload = await self._call(rpc.OpenDirectChat(user, other, is_host))
        return msgspec.msgpack.decode(payload, type=frames.ChatInfo)

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        operation = rpc.CreateGroupChat(user, ref, list(members), name, is_host)
        return msgspec.msgpack.decode(await self._call(operation), type=frames.ChatInfo)

    async def forward_frame(
        self,
        call: rpc.ForwardFrame,
        *,
        is_needed: bool,
        key: str | None = None,
        worker: str = "rpc",
    ) -> bytes:
        """Return the encoded reply to a frame; `is_needed`: even if Redis is full.

        `key` is the stream of the `worker` that handles the frame, if it is not `worker rpc`.
        """
        return await self._call(call, key, worker, is_needed=is_needed)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> rpc.HistoryRun:
        payload = await self._call(rpc.ReadHistory(chat, before, after, limit, ts))
        return msgspec.msgpack.decode(payload, type=rpc.HistoryRun)

    async def find_periods(self, chat: ChatId, user: UserId) -> Periods:
        payload = await self._call(rpc.FindPeriods(chat, user))
        return msgspec.msgpack.decode(payload, type=Periods)

    async def load_file(self, file: str) -> bytes:
        return await self._call(rpc.LoadFile(file))

    async def request_verdict(self, question: hooks.BeforeSend) -> hooks.Verdict:
        payload = await self._call(rpc.CallBeforeSend(question), self._hot.keys.hook_calls())
        return msgspec.msgpack.decode(payload, type=hooks.Verdict)

    async def _call(
        self,
        operation: rpc.AnyOperation,
        key: str | None = None,
        worker: str = "rpc",
        *,
        is_needed: bool = False,
    ) -> bytes:
        is_protective = rpc.is_protective(operation)
        if len(self._waiting) >= (2 * WAITING_MAX if is_protective else WAITING_MAX):
            raise Overloaded(
                "too many requests are waiting for the warm tier; try again", retry_after_ms=1000
            )
        call = rpc.Call(
            new_id(),
            self._gateway,
            rpc.get_queue_key(operation),
            int(self._timeout_s * 1000),
            operation,
        )
        future: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = future

        def on_reply(reply: Reply) -> None:
            if isinstance(reply, Exception) and not future.done():
                error = translate_reply_error(reply)
                if not isinstance(error, Overloaded):
                    text = f"warm tier: cannot queue the call: {reply}"
                    error = Unavailable(text, public=error.public_message)
                future.set_exception(error)

        key = key or self._hot.keys.rpc_calls()
        is_needed = is_needed or is_protective or isinstance(operation, _NEEDED_WHEN_FULL)
        send = self._hot.send_write if is_needed else self._hot.send
        send(on_reply, "XADD", key, "MAXLEN", "~", CALLS_MAX, "*", "c", rpc.encode_call(call))
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await future
        except TimeoutError:
            raise Unavailable(
                f"the warm tier did not respond within {self._timeout_s:g} s; check that "
                f"`chatserver worker {worker}` is running"
            ) from None
        finally:
            self._waiting.pop(call.id, None)
        if result.code:
            raise _make_error(result)  # a local variable would create a reference cycle
        return result.payload


def _make_error(result: CallResult) -> ChatError:
    kind = ERRORS_BY_CODE.get(result.code, CorruptData)
    error = kind(result.payload.decode(), retry_after_ms=result.retry_after_ms)
    error.temporary = result.is_temporary
    return error
