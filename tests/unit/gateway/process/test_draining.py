"""Draining: each session gets `bye` once, spread over time, after its pending responses."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from chatserver.gateway.process.draining import (
    RETRY_FIRST_MS,
    SPREAD_MS_MAX,
    SPREAD_MS_MIN,
    compute_spread_ms,
    poll_until,
    send_byes,
)
from chatserver.protocol.error_codes import Close


@dataclass
class FakeSession:
    """Records its `bye` frames; `is_busy` is true the given number of times."""

    busy_checks: int = 0
    byes: list[tuple[int, int | None]] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        self.busy_checks -= 1
        return self.busy_checks >= 0

    def close(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
        self.byes.append((code, retry_after_ms))


@pytest.mark.parametrize(
    ("sessions", "rate", "expected"),
    [
        (0, 1000, SPREAD_MS_MIN),
        (1, 1000, SPREAD_MS_MIN),
        (5_000, 1000, 5_000),
        (5_000, 100, 50_000),
        (1_000_000, 1000, SPREAD_MS_MAX),
    ],
)
def test_spread_grows_with_the_number_of_sessions(sessions: int, rate: int, expected: int) -> None:
    """Clients reconnect at the given rate at most, within a bounded time."""
    assert compute_spread_ms(sessions, rate) == expected


async def test_byes_are_sent_once_with_evenly_spread_retry_times() -> None:
    """A thousand clients do not reconnect at the same time."""
    sessions = [FakeSession() for _ in range(1000)]

    await send_byes(cast(Any, sessions), 0.2, 500, random.Random(1))

    assert all(len(session.byes) == 1 for session in sessions)
    assert {session.byes[0][0] for session in sessions} == {Close.SHUTDOWN}
    waits = sorted(session.byes[0][1] or 0 for session in sessions)
    assert waits[0] >= RETRY_FIRST_MS and waits[-1] < RETRY_FIRST_MS + 2000
    tenths = [sum(start <= wait < start + 200 for wait in waits) for start in range(100, 2100, 200)]
    assert all(50 < count < 150 for count in tenths), tenths


async def test_bye_to_a_busy_session_waits_for_its_responses() -> None:
    """A session with unanswered sends is closed after the others."""
    order: list[FakeSession] = []

    class RecordingSession(FakeSession):
        def close(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
            order.append(self)

    busy, idle = RecordingSession(busy_checks=2), RecordingSession()

    await send_byes(cast(Any, [busy, idle]), 600.0, 1000, random.Random(1))

    assert order == [idle, busy]


async def test_bye_to_a_session_that_stays_busy_is_sent_at_the_deadline() -> None:
    """A client that never stops sending does not delay the shutdown."""
    endless = FakeSession(busy_checks=10**9)

    async with asyncio.timeout(20):
        await send_byes(cast(Any, [endless]), 0.1, 1000, random.Random(1))

    assert len(endless.byes) == 1


async def test_byes_without_drain_time_are_sent_at_once() -> None:
    """With `drain_s` 0, busy sessions get `bye` too."""
    sessions = [FakeSession(busy_checks=5) for _ in range(100)]

    await send_byes(cast(Any, sessions), 0.0, 1000, random.Random(1))

    assert all(len(session.byes) == 1 for session in sessions)


async def test_poll_until_ends_at_its_condition_or_timeout() -> None:
    """A poll also ends if its condition is never true."""
    results = iter([False, True])

    await poll_until(lambda: next(results), 60)
    await poll_until(lambda: False, 0.01)

    assert list(results) == []
