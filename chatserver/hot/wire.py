"""One ordered, pipelined connection to Redis.

redis-py spends about 50 µs of CPU on an awaited call and gives each caller a connection of its
own, so calls overtake each other. A gateway needs the opposite: one connection on which calls run
in the order they were made, many in flight, at a few microseconds each. That is all this is: a
queue of callbacks beside hiredis' parser. What runs once (addresses, blocking reads, scans) uses
redis-py. Figures: docs/decisions/0004.

Invariants: replies belong to calls by order, so a connection on which a reply is late, torn or
unexpected is closed and never used again; each call is answered exactly once, by a reply or by
`Unavailable`. Only Redis can be late: while this process stands still (stopped, swapped out, its
loop held up), it neither sends nor hears, so deadlines are counted in looks and not by the clock.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis

from chatserver.errors import Unavailable

Reply = Any  # bytes, int, None, list of replies, hiredis.ReplyError, or Unavailable
OnReply = Callable[[Reply], None]

_MISSING = object()
_KEYLESS = frozenset({"PING", "ECHO", "TIME", "INFO", "CONFIG", "CLIENT", "CLUSTER", "SCRIPT"})
_WATCHES = 4  # looks at the oldest call, in the time that a call has


def pack(*values: bytes) -> bytes:
    """Return values as they stand in a `Packed` call."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


class Packed(bytes):
    """A whole call in Redis's own format, to be sent as it is; `key` is one of its keys."""

    key: str


def key_in(args: Sequence[str | bytes | int]) -> str | bytes | None:
    """Return the first key of a call; None if it has none."""
    name = args[0]
    if isinstance(name, Packed):
        return name.key
    if name in ("EVALSHA", "EVAL"):
        key = args[3] if args[2] else None
    elif name in _KEYLESS:
        key = None
    elif name == "XGROUP":
        key = args[2]
    else:
        key = args[1]
    return key if isinstance(key, str | bytes) else None


class Wire(asyncio.Protocol):
    """A connection; made by `connect`, finished when `closed` is done."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._reader = hiredis.Reader(notEnoughData=_MISSING)
        self._pending: collections.deque[tuple[OnReply, int]] = collections.deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._watches = 0
        self._why = f"redis at {name}: connection lost"
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start watching deadlines."""
        # uvloop's transports are Transports in all but name.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Answer calls in the order they were made."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _MISSING:
                pending.popleft()[0](reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort(f"redis at {self.name}: sent what is not an answer")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every waiting caller that the outcome is unknown."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)
        pending, self._pending = self._pending, collections.deque()
        for on_reply, _ in pending:
            on_reply(Unavailable(self._why))

    # calls

    @property
    def is_open(self) -> bool:
        """True while calls can be made."""
        return self._transport is not None and not self.closed.done()

    def send(self, on_reply: OnReply, *args: str | bytes | int) -> None:
        """Make a call; `on_reply` gets the reply, an error reply, or `Unavailable`.

        Guarantees:
            Order: calls reach Redis in the order of `send`; all of one loop tick in one write.
            Answer: `on_reply` runs exactly once, within the timeout, never before `send` returns.
        """
        if self._transport is None or self.closed.done():
            self._loop.call_soon(on_reply, Unavailable(self._why))
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        first = args[0]
        if type(first) is Packed:
            self._out.append(first)
        else:
            self._out.append(hiredis.pack_command(args))  # type: ignore[arg-type]  # its stub means tuple[…, ...]
        self._pending.append((on_reply, self._watches))

    def abort(self, why: str) -> None:
        """Close at once; every waiting call fails with `why`."""
        self._why = why
        if not self.closed.done():
            self.closed.set_result(None)
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _watch(self) -> None:
        # However late this look comes: what came, or was to be sent, has its turn before the next.
        # The one after which a call was made does not count for it.
        if self._pending and self._watches - self._pending[0][1] >= _WATCHES:
            self.abort(f"redis at {self.name}: no answer within {self._timeout_s:g} s")
            return
        self._watches += 1
        self._watchdog = self._loop.call_later(self._timeout_s / _WATCHES, self._watch)
