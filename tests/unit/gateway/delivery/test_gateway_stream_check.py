"""A gateway is ready while the records that it sends to itself return."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.gateway.delivery import gateway_stream_check
from chatserver.gateway.delivery.gateway_stream_check import LATE_S, GatewayStreamCheck
from chatserver.hot.bus.gateway_stream import Echo


class Clock(SystemClock):
    """A clock that the test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Post:
    """Mail that was posted."""

    def __init__(self) -> None:
        self.posted: list[Echo] = []

    def send_to_self(self, echo: Echo) -> None:
        self.posted.append(echo)


async def test_self_mail_is_trouble_until_it_comes_and_when_it_no_longer_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not ready before the first record and when the last one is too old."""
    monkeypatch.setattr(gateway_stream_check, "INTERVAL_S", 0.0)
    monkeypatch.setattr(gateway_stream_check, "FIRST_S", 0.0)
    post, clock = Post(), Clock()
    mail = GatewayStreamCheck(cast(Any, post), clock)
    before = mail.find_problem()
    task = asyncio.create_task(mail.run())
    async with asyncio.timeout(20):
        while len(post.posted) < 3:
            await asyncio.sleep(0)
    task.cancel()

    mail.record_arrival(Echo(99))  # of an earlier life of the stream
    by_another = mail.find_problem()
    mail.record_arrival(post.posted[0])
    fresh = mail.find_problem()
    clock.now += LATE_S + 1
    late = mail.find_problem()
    mail.record_arrival(post.posted[2])

    assert before == by_another == "this gateway's stream has received no echo yet"
    assert fresh == ""
    assert late == "this gateway's stream receives no echoes; check Redis"
    assert mail.find_problem() == ""
