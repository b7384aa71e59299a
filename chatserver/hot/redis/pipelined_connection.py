"""One ordered, pipelined connection to Redis.

redis-py uses about 50 µs of CPU for each awaited call. It uses a separate connection for each
concurrent caller, so calls can overtake each other. This module pipelines many calls on one
connection, in call order, for a few microseconds each. Rare operations use redis-py. Measurements:
docs/decisions/0004.

Invariants: replies match calls by order, so a connection with a late, truncated or unexpected reply
is closed. Each call gets exactly one result, a reply or `Unavailable`. Timeouts count ticks of a
timer (the watchdog), so they do not advance while this process is suspended (stopped, swapped out,
or with a blocked event loop).
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis

from chatserver.errors import REDIS_DOWN, Unavailable
from chatserver.hot.redis.scripts import Packed

Reply = Any  # A reply is bytes, int, None, a list of replies, hiredis.ReplyError, or Unavailable.
OnReply = Callable[[Reply], None]

_MISSING = object()
_KEYLESS = frozenset({"PING", "ECHO", "TIME", "INFO", "CONFIG", "CLIENT", "CLUSTER", "SCRIPT"})
_TICKS_PER_TIMEOUT = 4  # A call times out after this many watchdog ticks.


def find_first_key(args: Sequence[str | bytes | int]) -> str | bytes | None:
    """Return the first key of a call, or None."""
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


class PipelinedConnection(asyncio.Protocol):
    """A connection, usable after `connection_made`. `closed` completes when the connection ends."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._reader = hiredis.Reader(notEnoughData=_MISSING)
        self._pending: collections.deque[tuple[OnReply, int]] = collections.deque()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []  # calls that are written at the end of the tick
        self._watchdog: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._close_reason = f"redis at {name}: connection lost"
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout watchdog."""
        # uvloop's transports behave like Transport but do not inherit from it.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._check_timeout()

    def data_received(self, data: bytes) -> None:
        """Pass each reply to its call, in call order."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _MISSING:
                pending.popleft()[0](reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort(f"redis at {self.name}: invalid reply")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every pending call with `Unavailable`; Redis may have run it."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._transport = None
        self._out.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        pending, self._pending = self._pending, collections.deque()
        for on_reply, _ in pending:
            on_reply(Unavailable(self._close_reason, public=REDIS_DOWN))

    # calls

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.closed.done()

    def send(self, on_reply: OnReply, *args: str | bytes | int) -> None:
        """Send a call; `on_reply` receives the reply, an error reply, or `Unavailable`.

        Guarantees:
            Order: calls reach Redis in the order of `send`.
            Cost: one write for all calls of a loop tick, at its end. uvloop itself would write each
                call at once. A commit is written immediately: a tick has one per partition.
            Reply: `on_reply` runs exactly once, within the timeout, never before `send` returns.
        """
        if self._transport is None or self.closed.done():
            self._loop.call_soon(on_reply, Unavailable(self._close_reason, public=REDIS_DOWN))
            return
        self._pending.append((on_reply, self._ticks))
        out, first = self._out, args[0]
        if type(first) is Packed:
            out.append(first)
            self._write_out()
            return
        if not out:
            self._loop.call_soon(self._write_out)
        out.append(hiredis.pack_command(args))  # type: ignore[arg-type]  # wrong stub

    def _write_out(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def abort(self, reason: str) -> None:
        """Close immediately; every pending call fails with `reason`, but Redis may run it."""
        self._write_out()
        self._close_reason = reason
        if not self.closed.done():
            self.closed.set_result(None)
        if self._transport is not None:
            self._transport.abort()

    def _check_timeout(self) -> None:
        # While the event loop is blocked, at most one tick passes, and replies are read before the
        # next one. The first tick after a call does not count for it.
        if self._pending and self._ticks - self._pending[0][1] >= _TICKS_PER_TIMEOUT:
            self.abort(f"redis at {self.name}: no response within {self._timeout_s:g} s")
            return
        self._ticks += 1
        self._watchdog = self._loop.call_later(
            self._timeout_s / _TICKS_PER_TIMEOUT, self._check_timeout
        )
