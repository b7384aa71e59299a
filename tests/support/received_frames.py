"""Frames received by a device, and functions that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from tests.support.wire import DEADLINE_S, Frame, describe

Fields = dict[str, Any]


class ReceivedFrames:
    """All frames that a device received, in order, over all its connections."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.frames: list[Fields] = []
        self.ended: asyncio.Event = asyncio.Event()  # set when the connection has ended
        self.close_frame: Frame | None = None
        self._changed = asyncio.Condition()

    async def notify_waiters(self) -> None:
        """Evaluate the conditions of all waiting `expect` calls again."""
        async with self._changed:
            self._changed.notify_all()

    def of_type(self, type_: str, **wanted: Any) -> list[Fields]:
        """Return the received frames of a type that have these fields."""
        return [
            frame
            for frame in self.frames
            if frame["type"] == type_ and all(frame.get(k) == v for k, v in wanted.items())
        ]

    def messages(self, chat: str | None = None) -> list[Fields]:
        """Return the messages received so far, of one chat or of all."""
        events = self.of_type("event", kind="message")
        return [event["message"] for event in events if chat in (None, event["chat"])]

    async def expect(
        self,
        condition: Callable[[Self], Any],
        deadline_s: float = DEADLINE_S,
        what: str = "",
    ) -> Any:
        """Wait until the condition, evaluated after each frame, is true; return its value."""
        try:
            async with asyncio.timeout(deadline_s), self._changed:
                await self._changed.wait_for(lambda: condition(self))
        except TimeoutError:
            last = "\n  ".join(repr(frame)[:300] for frame in self.frames[-8:])
            end = f", ended ({self.close_frame})" if self.ended.is_set() else ""
            raise AssertionError(
                f"{self.device}{end}: {what or 'condition'} not true in {deadline_s:g} s;"
                f" the last frames were\n  {last}"
            ) from None
        return condition(self)

    async def expect_frame(
        self, type_: str, deadline_s: float = DEADLINE_S, **wanted: Any
    ) -> Fields:
        """Wait for a frame of a type with these fields; return the first one."""
        found: list[Fields] = await self.expect(
            lambda chat: chat.of_type(type_, **wanted), deadline_s, f"{type_} {wanted}"
        )
        return found[0]

    async def expect_bodies(
        self, chat: str, bodies: list[str], deadline_s: float = DEADLINE_S
    ) -> None:
        """Wait until a chat has exactly the messages with these bodies, in this order."""
        await self.expect(lambda me: len(me.messages(chat)) >= len(bodies), deadline_s)
        assert [message["body"] for message in self.messages(chat)] == bodies

    async def expect_close(self, code: int, deadline_s: float = DEADLINE_S) -> Fields | None:
        """Wait for the server's close with this code; return the `bye` before it, if any."""
        try:
            async with asyncio.timeout(deadline_s):
                await self.ended.wait()
        except TimeoutError:
            raise AssertionError(f"{self.device}: no close {code} in {deadline_s:g} s") from None
        assert self.close_frame is not None, "the connection ended without a close frame"
        assert self.close_frame.close_code == code, describe(self.close_frame)
        return self.frames[-1] if self.frames and self.frames[-1]["type"] == "bye" else None
