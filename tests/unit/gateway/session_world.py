"""A session whose connection and dependencies are fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

from chatserver.config import Gateway
from chatserver.domain.ids import Epoch, Seq, UserId
from chatserver.gateway.session.command_handler import CommandHandler
from chatserver.gateway.session.shared_session_context import (
    RECOVERIES_MAX,
    HotPathCounters,
    SessionTasks,
)
from chatserver.gateway.transport.connection import Phase


class FakeConnection:
    """A connection that records what it is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.phase = Phase.OPEN
        self.peer = "192.0.2.1"
        self.is_slow = False

    def start_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        """No deadline expires in these tests."""

    def send_text(self, payload: bytes) -> None:
        self.sent.append(msgspec.json.decode(payload))

    def send_frame(self, frame: bytes) -> None:
        self.send_text(frame[frame.index(b"{") :])

    async def wait_for_room(self) -> None:
        await asyncio.sleep(0)

    def close(self, code: int, reason: str) -> None:
        self.phase = Phase.CLOSED


class FakeContext:
    """The context of one session; one object replaces all dependencies."""

    def __init__(self) -> None:
        self.settings = Gateway()
        self.counters = HotPathCounters()
        self.tasks: Any = SessionTasks()
        self.recoveries = asyncio.Semaphore(RECOVERIES_MAX)
        self.container = self.presence = self.requests = self.messaging = self.hot = self
        self.channels: Any = self

    def detach(self, session: object) -> None:
        """There are no large chats."""


class Unlimited:
    """A rate limit that never refuses."""

    is_removed = False

    def spend(self, cost: int = 1) -> bool:
        return True


def welcome(context: object, connection: object, epoch: Epoch, head: int) -> CommandHandler:
    """Return the handler of a session that was welcomed at the head of its inbox."""
    handler = CommandHandler(
        context=cast(Any, context),
        connection=cast(Any, connection),
        directory=cast(Any, context),
        admission=cast(Any, context),
        on_authenticated=lambda connection: None,
        on_end=lambda session: None,
    )
    handler.session.user = UserId("alice")
    handler.session.state.hello()
    handler.session.state.welcome(epoch, Seq(head))
    return handler
