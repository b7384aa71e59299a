"""A gateway is ready while it receives the records that it sends to itself."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from chatserver.gateway.delivery import gateway_stream_echo
from chatserver.gateway.delivery.gateway_stream_echo import LATE_S, GatewayStreamEcho
from chatserver.hot.bus.gateway_stream import Echo
from tests.support.fake_clocks import FakeClock


class FakeStreamWriter:
    """Records the echoes that are sent."""

    def __init__(self) -> None:
        self.sent: list[Echo] = []

    def send_to_self(self, echo: Echo) -> None:
        self.sent.append(echo)


async def test_gateway_stream_without_a_recent_echo_reports_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway is not ready before the first echo and when the last one is too old."""
    monkeypatch.setattr(gateway_stream_echo, "INTERVAL_S", 0.0)
    monkeypatch.setattr(gateway_stream_echo, "FIRST_S", 0.0)
    writer, clock = FakeStreamWriter(), FakeClock()
    echo = GatewayStreamEcho(cast(Any, writer), clock)
    before = echo.find_problem()
    task = asyncio.create_task(echo.run())
    async with asyncio.timeout(20):
        while len(writer.sent) < 3:
            await asyncio.sleep(0)
    task.cancel()

    echo.record_arrival(Echo(99))  # sent before this process started
    after_unknown_echo = echo.find_problem()
    echo.record_arrival(writer.sent[0])
    fresh = echo.find_problem()
    clock.now += LATE_S + 1
    late = echo.find_problem()
    echo.record_arrival(writer.sent[2])

    assert (
        before
        == after_unknown_echo
        == "the gateway has not received an echo through its stream yet"
    )
    assert fresh == ""
    assert late == "the gateway receives no echoes through its stream; check Redis"
    assert echo.find_problem() == ""
