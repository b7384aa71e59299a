"""Streams the text of a response in progress to the user's devices.

::

    delta ─► first: unbatched; later: batched for `flush_s` ─► stored in Redis ─► signal to gateways
                                                              (for late joiners)

Deltas are stored before they are published. Publishing is best effort: a device that detects a gap
in `index` requests the current text (`join_turn`). The list of the user's gateways is refreshed
periodically, not for each delta.
"""

from __future__ import annotations

import asyncio
import contextlib

import attrs
from msgspec import UNSET

from chatserver.domain.ids import GatewayId, Seq
from chatserver.errors import ChatError
from chatserver.features.companions.frames import AiSignal
from chatserver.features.companions.hot.response_stream import DELTAS_MAX, ResponseStream
from chatserver.features.companions.model import CompanionSession
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec


@attrs.define(eq=False, repr=False, kw_only=True)
class ResponsePublisher:
    """Publishes one response in progress."""

    _deltas: ResponseStream
    _inboxes: Inboxes
    _delivery: RemoteDelivery
    _session: CompanionSession
    _seq: Seq
    _response_id: str
    _flush_s: float
    _gateways: tuple[GatewayId, ...] = attrs.field(default=(), init=False)
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop, init=False)
    _timer: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _buffer: list[str] = attrs.field(factory=list, init=False)
    _streamed: list[str] = attrs.field(factory=list, init=False)
    _tools: list[str] = attrs.field(factory=list, init=False)
    _flushed_at: float = attrs.field(default=0.0, init=False)
    index: int = attrs.field(default=0, init=False)

    @property
    def text(self) -> str:
        return "".join(self._streamed)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model used, in order of first use."""
        return list(dict.fromkeys(self._tools))

    async def start(self, ttl_s: float) -> None:
        """Store and publish the start of the response. Raises Unavailable."""
        await self._deltas.begin(self._session.chat, self._response_id, self._seq, ttl_s)
        await self.refresh_gateways()
        self._send_signal("")

    async def refresh_gateways(self) -> None:
        """Reload the list of the user's gateways."""
        with contextlib.suppress(ChatError):  # if Redis fails, keep the old list
            (self._gateways,) = await self._inboxes.list_gateways([self._session.user])

    def append(self, text: str) -> None:
        """Add text, to be published immediately or with the next batch."""
        self._streamed.append(text)
        self._buffer.append(text)
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
            return  # few deltas are left: keep the text until the next tool call or the end
        self._send()

    def _send(self) -> None:
        text = "".join(self._buffer)
        self._buffer.clear()
        if text:
            self._flushed_at = self._loop.time()
            self.index += 1
            self._deltas.append(self._session.chat, self.index, text)
            self._send_signal(text)

    def show_tool(self, name: str) -> None:
        """Publish that the model is calling a tool."""
        self._tools.append(name)
        self.flush()
        if self.index < DELTAS_MAX - 2:
            self.index += 1
            self._deltas.append(self._session.chat, self.index, "")
            self._send_signal("", tool=name)

    def flush(self) -> None:
        """Publish the buffered text now."""
        self.cancel()
        self._send()

    async def end(self, reason: str, ttl_s: float) -> None:
        """Publish how the response ended (best effort). The message itself is sent separately."""
        self.flush()
        self.index += 1
        with contextlib.suppress(ChatError):
            await self._deltas.end(self._session.chat, self.index, reason, ttl_s)
        self._send_signal("", reason)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_signal(self, text: str, end: str | None = None, tool: str | None = None) -> None:
        if not self._gateways:
            return
        frame = AiSignal(
            kind="ai.delta",
            chat=self._session.chat,
            from_=self._session.companion,
            turn=self._response_id,
            seq=self._seq,
            index=self.index,
            text=text,
            end=UNSET if end is None else end,
            tool=UNSET if tool is None else tool,
        )
        self._delivery.send_signal(self._session.user, codec.encode(frame), self._gateways)
