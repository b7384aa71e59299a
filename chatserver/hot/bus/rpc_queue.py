"""Worker side of the gateways' remote procedure calls; see `rpc`.

Data: ``{rpc}:calls`` (stream, bounded), read by all `rpc` workers as one consumer group. Webhook
calls and searches have their own streams and workers.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import msgspec
import redis.exceptions
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId
from chatserver.errors import REDIS_DOWN, ChatError, Unavailable
from chatserver.hot.bus import rpc
from chatserver.hot.bus.gateway_stream import CallResult, GatewayStreamWriter
from chatserver.hot.redis.client import BLOCK_MS, HotClient

log = structlog.get_logger()

UNKNOWN_CALL = "the worker does not know this call; update the worker"


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call received by a worker, with its deadline on the worker's monotonic clock."""

    call: rpc.Call
    until_s: float


def make_stopping_error() -> Unavailable:
    """Return the error for a call that was received but not started before shutdown."""
    return Unavailable("the worker is stopping; try again", retry_after_ms=100)


class RpcQueue:
    """Receives the calls to the workers and sends the results."""

    def __init__(
        self, *, hot: HotClient, consumer: str, clock: Clock, key: str | None = None
    ) -> None:
        self._hot = hot
        self._clock = clock
        self._key = key or hot.keys.rpc_calls()
        self._consumer = consumer
        self._gateway_stream_writer = GatewayStreamWriter(hot)

    async def iter_calls(self) -> AsyncGenerator[ReceivedCall]:
        """Yield calls as they arrive, each to one worker; fail calls whose budget is used up.

        When the generator closes, calls that were read but not yielded fail with a retryable error.

        Raises:
            Unavailable: the connection to Redis failed; start a new iteration.
        """
        received = collections.deque[ReceivedCall]()
        client = self._hot.create_blocking_client(self._key)
        try:
            await self._hot.create_group(self._key, rpc.GROUP)
            while True:
                read = client.xreadgroup(
                    rpc.GROUP,
                    self._consumer,
                    {self._key: ">"},
                    count=50,
                    block=BLOCK_MS,
                    noack=True,
                )
                reply: Any = await self._hot.with_deadline(read)
                for _, entries in reply or ():
                    received_at = self._clock.monotonic()
                    seconds, micros = await self._hot.with_deadline(client.time())
                    now_ms = seconds * 1000 + micros // 1000
                    received.extend(self._decode(entries, received_at, now_ms))
                while received:
                    yield received.popleft()
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._hot.name}: {exc}", public=REDIS_DOWN) from exc
        finally:
            for call in received:
                self.fail(call.call, make_stopping_error())
            await client.aclose()

    def _decode(
        self, entries: Iterable[tuple[bytes, dict[bytes, bytes]]], received_at: float, now_ms: int
    ) -> Iterator[ReceivedCall]:
        for name, fields in entries:
            payload = fields.get(b"c", b"")
            try:
                call = rpc.decode_call(payload)
            except msgspec.MsgspecError as exc:
                log.error("rpc.call_rejected", entry=name.decode(), error=str(exc))
                with contextlib.suppress(msgspec.MsgspecError):
                    head = rpc.decode_head(payload)
                    self.fail(head, Unavailable(UNKNOWN_CALL))
                continue
            age_ms = max(0, now_ms - int(name.partition(b"-")[0]))
            received = ReceivedCall(call, received_at + (call.budget_ms - age_ms) / 1000)
            if age_ms >= call.budget_ms:
                self.drop(received)
            else:
                yield received

    def drop(self, received: ReceivedCall) -> None:
        """Fail a call that waited longer than its budget."""
        operation = rpc.get_name(received.call.operation)
        log.warning("rpc.call_expired", operation=operation, budget_ms=received.call.budget_ms)
        self.fail(
            received.call, Unavailable("the call waited too long for an rpc worker; try again")
        )

    def send_result(self, call: rpc.Call, payload: bytes) -> None:
        self._gateway_stream_writer.send(GatewayId(call.gateway), CallResult(call.id, "", payload))

    def fail(self, call: rpc.CallHead, error: ChatError) -> None:
        """Send the error of a call to its gateway."""
        result = CallResult(
            call.id,
            error.code,
            error.public_message.encode(),
            error.temporary,
            error.retry_after_ms,
        )
        self._gateway_stream_writer.send(GatewayId(call.gateway), result)
