"""Gateway streams: one Redis stream per gateway, with records from other processes.

Data: ``{gw:<id>}:stream`` (stream). Each stream entry is a msgpack array of records. Only the
gateway itself creates its stream and extends its TTL, so records for a dead gateway are dropped.

Guarantees: best effort. A gateway that misses an event detects this from a gap in the inbox seqs,
or when it next renews its users' presence (the reply has the newest inbox seqs). It then reads the
inbox (guarantee P4 in docs/guarantees.md). Bound: `STREAM_ENTRIES_MAX` entries. If the gateway has
more unread entries, the oldest are lost, and the gateway checks the inboxes of all its users.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec
import redis.exceptions
import structlog

from chatserver.domain.ids import ChatId, Epoch, GatewayId, UserId
from chatserver.errors import ChatError, Unavailable
from chatserver.hot.redis.client import BLOCK_MS, HotClient
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

STREAM_ENTRIES_MAX = 20_000  # maximum entries in a gateway stream (approximate)

STREAM_TTL_S = 120
_READ_MAX = 200


class GatewayRecord(msgspec.Struct, array_like=True, tag_field="k"):
    """Base class of gateway stream records."""


class Push(GatewayRecord, tag="p", array_like=True):
    """An event: the recipients, the inbox seq of each, and the encoded event without the seq."""

    users: list[str]
    epoch: str
    seqs: list[int]
    body: bytes


class NewSeq(GatewayRecord, tag="n", array_like=True):
    """A user's inbox has grown to `seq`; the gateway reads the inbox."""

    user: str
    seq: int


class Publish(GatewayRecord, tag="l", array_like=True):
    """An entry of a large chat. Without `body`, the gateway reads the log up to `seq`."""

    chat: str
    epoch: str
    seq: int
    body: bytes


class ChannelSignal(GatewayRecord, tag="c", array_like=True):
    """A signal (typing) from a user to the members of a large chat."""

    chat: str
    user: str
    frame: bytes


class UserSignal(GatewayRecord, tag="s", array_like=True):
    """A signal (typing, presence) for a user."""

    user: str
    frame: bytes


class StoredUpdate(GatewayRecord, tag="w", array_like=True):
    """The warm tier has stored the user's messages in `chat` up to seq `upto`, of epoch `epoch`."""

    user: str
    chat: str
    upto: int
    epoch: str = ""


class PresenceUpdate(GatewayRecord, tag="o", array_like=True):
    """A presence change, for the subscribers on this gateway.

    The fields after `user` are the same as in `chatserver.domain.presence.PresenceRecord`.
    """

    user: str
    state: str
    last_ms: int
    version: int


class Replaced(GatewayRecord, tag="r", array_like=True):
    """A session on this gateway was replaced by a newer session of the user."""

    user: str
    session: str


class EndSessions(GatewayRecord, tag="e", array_like=True):
    """A user's revocation marks; see `chatserver.domain.access.logins.RevocationMarks`.

    The gateway closes the sessions to which the marks apply.
    """

    user: str
    logins: list[str]
    before: int
    is_banned: bool
    reason: str


class CallResult(GatewayRecord, tag="a", array_like=True):
    """The result of a call to the warm tier; `code` is empty on success."""

    call: str
    code: str
    payload: bytes
    is_temporary: bool = False
    retry_after_ms: int | None = None


class Echo(GatewayRecord, tag="h", array_like=True):
    """A record that a gateway sends to itself to check its stream."""

    number: int


AnyRecord = (
    Push
    | NewSeq
    | Publish
    | ChannelSignal
    | UserSignal
    | StoredUpdate
    | PresenceUpdate
    | Replaced
    | EndSessions
    | CallResult
    | Echo
)

_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])
_encode = msgspec.msgpack.Encoder().encode


class _Flush:
    """The writes of one tick: pending count, whether any was lost, and completion callbacks."""

    __slots__ = ("is_lost", "left", "waiting")

    def __init__(self, remaining: int) -> None:
        self.left = remaining
        self.is_lost = False
        self.waiting: list[Callable[[bool], None]] = []


class GatewayStreamWriter:
    """Sends records. Records for the same gateway in one loop tick share a stream entry."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._out: dict[GatewayId, list[AnyRecord]] = {}
        self._flushes: set[_Flush] = set()
        # Called if a gateway has no stream, which means that the gateway is dead. The argument is
        # the set of users in the records that were not delivered.
        self.on_dead_gateway: list[Callable[[set[UserId]], None]] = []

    def send(self, gateway: GatewayId, record: AnyRecord) -> None:
        """Send a record at the end of this tick."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.setdefault(gateway, []).append(record)

    def get_epoch(self, chat: ChatId) -> Epoch:
        """Return the epoch of the chat's Redis partition."""
        return self._hot.get_epoch(self._hot.keys.get_partition(chat))

    def get_device_epoch(self, epoch: Epoch) -> Epoch:
        """Return the epoch to send to devices; see `HotClient.get_device_epoch`."""
        return self._hot.get_device_epoch(epoch)

    def _flush(self) -> None:
        out, self._out = self._out, {}
        if not out:
            return
        failpoint("gateway_stream.before_post")
        flush = _Flush(len(out))
        self._flushes.add(flush)
        for gateway, records in out.items():
            self._hot.send_write(
                functools.partial(self._on_reply, flush, records),
                "XADD",
                self._hot.keys.gateway_stream(gateway),
                "NOMKSTREAM",
                "MAXLEN",
                "~",
                STREAM_ENTRIES_MAX,
                "*",
                "r",
                _encode(records),
            )

    def notify_when_written(self, on_written: Callable[[bool], None]) -> None:
        """Call `on_written` when the outcome of all records sent so far is known.

        The callback gets True if Redis has all of them, False if any was lost. Records for a dead
        gateway do not count as lost.
        """
        self._flush()
        if not self._flushes:
            on_written(True)
            return
        remaining, is_whole = len(self._flushes), True

        def on_flush_written(is_written: bool) -> None:
            nonlocal remaining, is_whole
            remaining, is_whole = remaining - 1, is_whole and is_written
            if remaining == 0:
                on_written(is_whole)

        for flush in self._flushes:
            flush.waiting.append(on_flush_written)

    async def wait_written(self) -> None:
        """Wait until Redis has all records sent so far.

        Raises:
            Unavailable: some records were lost.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_written(is_written: bool) -> None:
            if not future.done():
                future.set_result(is_written)

        self.notify_when_written(on_written)
        if not await future:
            raise Unavailable("redis: records for a gateway stream were lost; try again")

    def _on_reply(self, flush: _Flush, records: list[AnyRecord], reply: Reply) -> None:
        flush.left -= 1
        if flush.left == 0:
            self._flushes.discard(flush)
        if isinstance(reply, Exception):
            log.warning("gateway_stream.lost", error=str(reply))
            flush.is_lost = True
        elif reply is None:
            for callback in self.on_dead_gateway:
                callback({UserId(user) for record in records for user in _get_users(record)})
        if flush.left == 0:
            for on_written in flush.waiting:
                on_written(not flush.is_lost)


def _get_users(record: AnyRecord) -> Sequence[str]:
    if isinstance(record, (CallResult, Publish, ChannelSignal, Echo)):
        return ()
    return record.users if isinstance(record, Push) else (record.user,)


def _parse_id(entry_id: bytes) -> tuple[int, int]:
    ms, _, n = entry_id.partition(b"-")
    return int(ms), int(n)


class GatewayStream:
    """A gateway's own stream. It expires `ttl_s` after the gateway last renewed it."""

    def __init__(self, hot: HotClient, gateway: GatewayId, ttl_s: float = STREAM_TTL_S) -> None:
        self._hot = hot
        self._ttl_ms = int(ttl_s * 1000)
        self._key = hot.keys.gateway_stream(gateway)
        # Id of the last entry read; after a reconnect, reading resumes there.
        self._last: Any = None

    def send_to_self(self, echo: Echo) -> None:
        """Add a record to this gateway's own stream, to check that it arrives; best effort."""
        self._hot.send_write(
            lambda _: None,
            "XADD", self._key, "NOMKSTREAM", "MAXLEN", "~", STREAM_ENTRIES_MAX, "*",
            "r", _encode([echo]),
        )  # fmt: skip

    async def renew(self) -> None:
        """Create the stream, or reset its TTL to `ttl_s`."""
        if not await self._hot.call("PEXPIRE", self._key, self._ttl_ms):
            await self._hot.transaction(
                ("XADD", self._key, "*", "r", _encode([])), ("PEXPIRE", self._key, self._ttl_ms)
            )

    async def remove(self) -> None:
        """Delete the stream when the gateway shuts down."""
        await self._hot.call("UNLINK", self._key)

    async def iter_records(self) -> AsyncGenerator[list[AnyRecord] | None]:
        """Yield records as they arrive; yield None when records may have been lost.

        Guarantees:
            Endless: on an error, waits until Redis is available again.
            Cancellation: safe.
        """
        while True:
            try:
                async with contextlib.aclosing(self._read()) as batches:
                    async for batch in batches:
                        yield batch
            except (redis.exceptions.RedisError, OSError, ChatError) as exc:
                log.warning("gateway_stream.read_failed", error=str(exc))
                await asyncio.sleep(0.2)
                yield None

    async def _read(self) -> AsyncGenerator[list[AnyRecord] | None]:
        client = self._hot.create_blocking_client(self._key)
        try:
            await self.renew()
            newest = await self._read_newest_id(client)
            if self._last is None or _parse_id(newest) < _parse_id(self._last):
                self._last = newest  # This is the first read, or Redis lost the stream.
            yield None  # earlier records may have been lost
            while True:
                reply: Any = await self._hot.with_deadline(
                    client.xread({self._key: self._last}, count=_READ_MAX, block=BLOCK_MS)
                )
                if not reply:
                    continue
                entries = reply[0][1]
                if len(entries) == _READ_MAX and await self._is_overrun(client):
                    self._last = await self._read_newest_id(client)
                    log.warning("gateway_stream.overrun")
                    yield None
                    continue
                late_s = time.time() - int(entries[0][0].partition(b"-")[0]) / 1000
                metrics.GATEWAY_STREAM_LAG.observe(max(0.0, late_s))
                self._last = entries[-1][0]
                for _, fields in entries:
                    yield _decoder.decode(fields[b"r"])
        finally:
            await client.aclose()

    async def _is_overrun(self, client: Any) -> bool:
        """Return whether the last entry read was trimmed; if so, unread entries may be lost."""
        oldest = await self._hot.with_deadline(client.xrange(self._key, count=1))
        return bool(oldest) and _parse_id(oldest[0][0]) > _parse_id(self._last)

    async def _read_newest_id(self, client: Any) -> Any:
        newest = await self._hot.with_deadline(client.xrevrange(self._key, count=1))
        return newest[0][0] if newest else b"0-0"
