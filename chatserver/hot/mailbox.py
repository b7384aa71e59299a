"""Mailboxes: how processes tell a gateway something, many records in one stream entry.

Data: ``{gw:<id>}:mail`` (stream), one msgpack array of records per entry. Only its owner makes it
and keeps it from expiring, so mail to a dead gateway goes nowhere and costs nothing.

Guarantees: none beyond best effort; a push that is lost shows as a gap in the inbox seq, or at the
next heartbeat, and is read from the inbox (promise P4). Bound: `mail_max` entries; an owner that
fell so far behind drops them and compares every inbox instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import redis.exceptions
import structlog

from chatserver.domain.ids import ChatId, Epoch, GatewayId, UserId
from chatserver.errors import ChatError, Unavailable
from chatserver.hot.client import HotClient
from chatserver.hot.wire import Reply
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

MAIL_TTL_S = 120
_READ_MAX = 200
_BLOCK_MS = 1000


class Record(msgspec.Struct, array_like=True, tag_field="k"):
    """Anything a mailbox carries."""


class Push(Record, tag="p", array_like=True):
    """An event for users: each one's place in the inbox, and the shared part of the frame."""

    users: list[str]
    epoch: str
    seqs: list[int]
    body: bytes


class Nudge(Record, tag="n", array_like=True):
    """The inbox of a user has grown to `seq`: read it."""

    user: str
    seq: int


class Publish(Record, tag="l", array_like=True):
    """An entry of a large chat; without `body`: the chat has grown to `seq`, read it."""

    chat: str
    epoch: str
    seq: int
    body: bytes


class ChannelSignal(Record, tag="c", array_like=True):
    """A signal frame of a user for the members of a large chat."""

    chat: str
    user: str
    frame: bytes


class SignalMail(Record, tag="s", array_like=True):
    """A signal frame for a user."""

    user: str
    frame: bytes


class StoredMail(Record, tag="w", array_like=True):
    """What `user` sent to `chat` is in the warm tier up to `upto`, a seq of that `epoch`."""

    user: str
    chat: str
    upto: int
    epoch: str = ""


class SightMail(Record, tag="o", array_like=True):
    """A user whom somebody at the gateway watches is `state` now; see `domain.presence.Sight`."""

    user: str
    state: str
    last_ms: int
    version: int


class Replaced(Record, tag="r", array_like=True):
    """A session of a user at the gateway has lost its place to another one."""

    user: str
    session: str


class EndSessions(Record, tag="e", array_like=True):
    """What of a user has been ended; see `domain.logins.Marks`. Sessions it concerns are closed."""

    user: str
    logins: list[str]
    before: int
    is_banned: bool
    reason: str


class Answer(Record, tag="a", array_like=True):
    """The answer to a call to the warm tier; `code` is empty if it went well."""

    call: str
    code: str
    payload: bytes
    is_temporary: bool = False
    retry_after_ms: int | None = None


class Echo(Record, tag="h", array_like=True):
    """What a gateway sends to itself, to see that mail comes."""

    number: int


AnyRecord = (
    Push
    | Nudge
    | Publish
    | ChannelSignal
    | SignalMail
    | StoredMail
    | SightMail
    | Replaced
    | EndSessions
    | Answer
    | Echo
)

_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])
_encode = msgspec.msgpack.Encoder().encode


class _Posting:
    """The entries of one flush: how many have no answer yet, whether any was lost, who waits."""

    __slots__ = ("is_lost", "left", "waiting")

    def __init__(self, left: int) -> None:
        self.left = left
        self.is_lost = False
        self.waiting: list[Callable[[bool], None]] = []


class Postman:
    """Posts records; those of one loop tick to one gateway share an entry."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._out: dict[GatewayId, list[AnyRecord]] = {}
        self._postings: set[_Posting] = set()
        # Told of users whose gateway turned out to have no mailbox: it died.
        self.on_gone: Callable[[set[UserId]], None] | None = None

    def post(self, gateway: GatewayId, record: AnyRecord) -> None:
        """Send a record at the end of this tick."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.setdefault(gateway, []).append(record)

    def epoch_of(self, chat: ChatId) -> Epoch:
        """Return the epoch of a chat, as of the present connection."""
        return self._hot.epoch_of(self._hot.keys.partition_of(chat))

    def told_epoch(self, epoch: Epoch) -> Epoch:
        """Return what devices are told instead of the epoch of a partition."""
        return self._hot.told_epoch(epoch)

    def _flush(self) -> None:
        out, self._out = self._out, {}
        if not out:
            return
        failpoint("mail.before_post")
        posting = _Posting(len(out))
        self._postings.add(posting)
        for gateway, records in out.items():
            self._hot.post(
                functools.partial(self._posted, posting, records),
                "XADD",
                self._hot.keys.mail(gateway),
                "NOMKSTREAM",
                "MAXLEN",
                "~",
                self._hot.settings.mail_max,
                "*",
                "r",
                _encode(records),
            )

    def when_posted(self, then: Callable[[bool], None]) -> None:
        """Call `then` once all that was posted before is answered; False if any was lost.

        What went to a gateway that is gone is not lost: nobody is there any more.
        """
        self._flush()
        if not self._postings:
            then(True)
            return
        left, is_whole = len(self._postings), True

        def one_answered(is_posted: bool) -> None:
            nonlocal left, is_whole
            left, is_whole = left - 1, is_whole and is_posted
            if left == 0:
                then(is_whole)

        for posting in self._postings:
            posting.waiting.append(one_answered)

    async def posted(self) -> None:
        """Wait until all that was posted before is answered.

        Raises:
            Unavailable: some of it was lost.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(is_posted: bool) -> None:
            if not future.done():
                future.set_result(is_posted)

        self.when_posted(done)
        if not await future:
            raise Unavailable("redis: mail was lost")

    def _posted(self, posting: _Posting, records: list[AnyRecord], reply: Reply) -> None:
        posting.left -= 1
        if posting.left == 0:
            self._postings.discard(posting)
        if isinstance(reply, Exception):
            log.warning("mail.lost", error=str(reply))
            posting.is_lost = True
        elif reply is None and self.on_gone is not None:
            self.on_gone({UserId(user) for record in records for user in _users_of(record)})
        if posting.left == 0:
            for then in posting.waiting:
                then(not posting.is_lost)


def _users_of(record: AnyRecord) -> Sequence[str]:
    if isinstance(record, (Answer, Publish, ChannelSignal, Echo)):
        return ()
    return record.users if isinstance(record, Push) else (record.user,)


def _place(entry_id: bytes) -> tuple[int, int]:
    ms, _, n = entry_id.partition(b"-")
    return int(ms), int(n)


class Mailbox:
    """A gateway's own mailbox. It ends `ttl_s` after its owner's last sign of life."""

    def __init__(self, hot: HotClient, gateway: GatewayId, ttl_s: float = MAIL_TTL_S) -> None:
        self._hot = hot
        self._ttl_ms = int(ttl_s * 1000)
        self._key = hot.keys.mail(gateway)
        # What was read last, kept over a lost connection: what was mailed meanwhile comes after it.
        self._last: Any = None

    def send_to_self(self, echo: Echo) -> None:
        """Put mail of its owner into it; best effort."""
        settings = self._hot.settings
        self._hot.post(
            lambda _: None,
            "XADD", self._key, "NOMKSTREAM", "MAXLEN", "~", settings.mail_max, "*",
            "r", _encode([echo]),
        )  # fmt: skip

    async def keep(self) -> None:
        """Make it, or keep it for another `ttl_s`."""
        if not await self._hot.call("PEXPIRE", self._key, self._ttl_ms):
            await self._hot.transaction(
                ("XADD", self._key, "*", "r", _encode([])), ("PEXPIRE", self._key, self._ttl_ms)
            )

    async def remove(self) -> None:
        """Take it away: the owner is leaving."""
        await self._hot.call("UNLINK", self._key)

    async def iter_records(self) -> AsyncIterator[list[AnyRecord] | None]:
        """Yield what arrives, from now on; None when records may have been lost.

        Guarantees:
            Endless: failures of Redis are waited out.
            Cancellation: safe.
        """
        while True:
            try:
                async with contextlib.aclosing(self._read()) as batches:
                    async for batch in batches:
                        yield batch
            except (redis.exceptions.RedisError, OSError, ChatError) as exc:
                log.warning("mail.read_failed", error=str(exc))
                await asyncio.sleep(0.2)
                yield None

    async def _read(self) -> AsyncGenerator[list[AnyRecord] | None]:
        client = self._hot.blocking_client(self._key)
        try:
            await self.keep()
            newest = await self._newest(client)
            if self._last is None or _place(newest) < _place(self._last):
                self._last = newest  # the first time, or the stream was lost and made anew
            yield None  # records before this may be lost
            while True:
                reply: Any = await self._hot.within(
                    client.xread({self._key: self._last}, count=_READ_MAX, block=_BLOCK_MS)
                )
                if not reply:
                    continue
                entries = reply[0][1]
                if len(entries) == _READ_MAX and await self._is_overrun(client):
                    self._last = await self._newest(client)
                    log.warning("mail.overrun")
                    yield None
                    continue
                late_s = time.time() - int(entries[0][0].partition(b"-")[0]) / 1000
                metrics.MAILBOX_LAG.observe(max(0.0, late_s))
                self._last = entries[-1][0]
                for _, fields in entries:
                    yield _decoder.decode(fields[b"r"])
        finally:
            await client.aclose()

    async def _is_overrun(self, client: Any) -> bool:
        """True if what was read last has been trimmed: then what came after it may be, too."""
        oldest = await self._hot.within(client.xrange(self._key, count=1))
        return bool(oldest) and _place(oldest[0][0]) > _place(self._last)

    async def _newest(self, client: Any) -> Any:
        newest = await self._hot.within(client.xrevrange(self._key, count=1))
        return newest[0][0] if newest else b"0-0"
