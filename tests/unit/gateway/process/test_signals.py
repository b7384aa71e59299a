"""Signals to a slow device are dropped, and its events are not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from chatserver.config import Gateway
from chatserver.domain.ids import Epoch, Seq
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.shared_session_context import HotPathCounters

EPOCH = Epoch("E1")


class FakeConnection:
    """A connection whose peer may be slow."""

    def __init__(self) -> None:
        self.is_slow = False
        self.sent: list[bytes] = []

    def send_text(self, payload: bytes) -> None:
        self.sent.append(payload)

    def send_parts(self, parts: tuple[bytes, ...], size: int) -> None:
        self.sent.append(b"".join(parts))


class Context:
    """The part of a session context that a push uses."""

    settings = Gateway()

    def __init__(self) -> None:
        self.counters = HotPathCounters()


async def test_signal_to_a_slow_device_is_dropped_and_its_events_are_not() -> None:
    """Typing and presence are dropped before events (guarantee P10)."""
    connection = FakeConnection()
    session = Session(
        context=cast(Any, Context()),
        connection=cast(Any, connection),
        on_live=lambda: None,
        on_end=lambda session: None,
    )
    session.state.hello()
    session.state.welcome(EPOCH, Seq(0))
    session.go_live(Seq(0))

    session.send_signal(b"typing 1")
    connection.is_slow = True
    session.send_signal(b"typing 2")
    session.push(EPOCH, Seq(1), (b"event",), 5)
    connection.is_slow = False
    session.send_signal(b"typing 3")
    await asyncio.sleep(0)

    assert connection.sent == [b"typing 1", b"event", b"typing 3"]
