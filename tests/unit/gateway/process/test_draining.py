"""Goodbyes: to each session once, spread over time, after its answers where there is time."""

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
    poll_until,
    send_byes,
    spread_ms_of,
)
from chatserver.protocol.codes import Close


@dataclass
class FakeSession:
    """Counts its `bye` frames; busy as often as the test sets."""

    looks_busy: int = 0
    byes: list[tuple[int, int | None]] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        self.looks_busy -= 1
        return self.looks_busy >= 0

    def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
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
    """So many clients come back at no more than the rate, within a bound."""
    assert spread_ms_of(sessions, rate) == expected


async def test_goodbye_comes_once_to_each_with_a_time_of_its_own() -> None:
    """A thousand clients get `bye` spread evenly over the time, not all at once."""
    sessions = [FakeSession() for _ in range(1000)]

    await send_byes(cast(Any, sessions), 0.2, 500, random.Random(1))

    assert all(len(session.byes) == 1 for session in sessions)
    assert {session.byes[0][0] for session in sessions} == {Close.SHUTDOWN}
    waits = sorted(session.byes[0][1] or 0 for session in sessions)
    assert waits[0] >= RETRY_FIRST_MS and waits[-1] < RETRY_FIRST_MS + 2000
    tenths = [sum(start <= wait < start + 200 for wait in waits) for start in range(100, 2100, 200)]
    assert all(50 < count < 150 for count in tenths), tenths


async def test_goodbye_waits_for_answers_that_are_due() -> None:
    """A session whose sends are unanswered goes after the others."""
    order: list[FakeSession] = []

    class Noting(FakeSession):
        def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
            order.append(self)

    busy, idle = Noting(looks_busy=2), Noting()

    await send_byes(cast(Any, [busy, idle]), 600.0, 1000, random.Random(1))

    assert order == [idle, busy]


async def test_goodbye_to_one_who_is_never_done_comes_when_time_is_up() -> None:
    """A client that never stops sending does not hold the process up."""
    endless = FakeSession(looks_busy=10**9)

    async with asyncio.timeout(20):
        await send_byes(cast(Any, [endless]), 0.1, 1000, random.Random(1))

    assert len(endless.byes) == 1


async def test_goodbye_without_time_is_said_all_the_same() -> None:
    """`drain_s` 0: everybody at once."""
    sessions = [FakeSession(looks_busy=5) for _ in range(100)]

    await send_byes(cast(Any, sessions), 0.0, 1000, random.Random(1))

    assert all(len(session.byes) == 1 for session in sessions)


async def test_poll_ends_when_it_is_done_or_time_is_up() -> None:
    """Whichever comes first."""
    looks = iter([False, True])

    await poll_until(lambda: next(looks), 60)
    await poll_until(lambda: False, 0.01)

    assert list(looks) == []
