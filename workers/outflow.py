"""What a companion says, on its way to the devices while it is said.

::

    delta ─► the first at once, later ones joined for `flush_ms` ─► kept in Redis ─► signal, by mail
                                                                      (for who joins later)

A piece is kept before it is told, on the same connection. Signals are best effort: a device that
sees a gap in `index` joins again. Which gateways the user is on is looked up now and then, not
with each piece.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from msgspec import UNSET

from chatserver.domain.companions import CompanionSession
from chatserver.domain.ids import GatewayId, Seq, UserId
from chatserver.errors import ChatError
from chatserver.hot.deltas import DELTAS_MAX, Deltas
from chatserver.protocol import codec, frames


class Boxes(Protocol):
    """Where users are."""

    async def list_gateways(self, users: Sequence[UserId]) -> list[tuple[GatewayId, ...]]: ...


class Told(Protocol):
    """Tells devices."""

    def signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None: ...


class Outflow:
    """One answer on its way."""

    def __init__(
        self,
        deltas: Deltas,
        boxes: Boxes,
        told: Told,
        session: CompanionSession,
        seq: Seq,
        turn: str,
        flush_s: float,
    ) -> None:
        self._deltas = deltas
        self._boxes = boxes
        self._told = told
        self._session = session
        self._seq = seq
        self._turn = turn
        self._flush_s = flush_s
        self._gateways: tuple[GatewayId, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[str] = []
        self._said: list[str] = []
        self._flushed_at = 0.0
        self.index = 0

    @property
    def text(self) -> str:
        """All that was said so far."""
        return "".join(self._said)

    async def begin(self, ttl_s: float) -> None:
        """Say that an answer begins. Raises Unavailable."""
        await self._deltas.begin(self._session.chat, self._turn, self._seq, ttl_s)
        await self.look()
        self._signal("")

    async def look(self) -> None:
        """Find out where the user is now."""
        with contextlib.suppress(ChatError):  # the next look may
            (self._gateways,) = await self._boxes.list_gateways([self._session.user])

    def say(self, text: str) -> None:
        """Take a delta."""
        self._said.append(text)
        self._waiting.append(text)
        if self._timer is not None:
            return
        due = self._flushed_at + self._flush_s
        if due <= self._loop.time():
            self._flush()
        else:
            self._timer = self._loop.call_at(due, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self.index >= DELTAS_MAX - 2:
            return  # what is left goes out with the end
        self._send()

    def _send(self) -> None:
        text = "".join(self._waiting)
        self._waiting.clear()
        if text:
            self._flushed_at = self._loop.time()
            self.index += 1
            self._deltas.append(self._session.chat, self.index, text)
            self._signal(text)

    def hush(self) -> None:
        """Say what is left, now: no delta follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send()

    async def end(self, how: str, ttl_s: float) -> None:
        """Say how the answer ended; best effort, for the message itself is told as an event."""
        self.hush()
        self.index += 1
        with contextlib.suppress(ChatError):
            await self._deltas.end(self._session.chat, self.index, how, ttl_s)
        self._signal("", how)

    def drop(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _signal(self, text: str, end: str | None = None) -> None:
        if not self._gateways:
            return
        frame = frames.AiSignal(
            "ai.delta",
            self._session.chat,
            self._session.companion,
            self._turn,
            self._seq,
            self.index,
            text,
            UNSET if end is None else end,
        )
        self._told.signal(self._session.user, codec.encode(frame), self._gateways)
