"""How a gateway lets its sessions go: answered, a few at a time, each told when to come back.

::

    refuse newcomers ─► bye to each session once its sends are answered ─► deadline ─► abort
                        (spread over half of `drain_s`)

A `bye` carries a time to come back that is random within a spread; the spread grows with the number
of sessions, so that the other gateways see at most some `reconnects_per_s` of them a second.
"""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Callable, Iterable
from typing import Protocol

from chatserver.protocol.codes import Close

REASON = "this gateway is restarting"
STEP_S = 0.05
BYES_PER_STEP = 20  # at least; who has few sessions need not dawdle
RETRY_FIRST_MS = 100
SPREAD_MS_MIN = 500
SPREAD_MS_MAX = 60_000


class Leaver(Protocol):
    """A session that is to go."""

    @property
    def is_busy(self) -> bool:
        """True while something that the client asked for is unanswered."""

    def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
        """Say why, and close."""


def spread_ms_of(sessions: int, reconnects_per_s: int) -> int:
    """Return the time over which so many sessions are to come back elsewhere."""
    return min(max(SPREAD_MS_MIN, sessions * 1000 // reconnects_per_s), SPREAD_MS_MAX)


async def say_goodbye(
    sessions: Iterable[Leaver], within_s: float, reconnects_per_s: int, rng: random.Random
) -> None:
    """Send every session its `bye`.

    Guarantees:
        Answers: what had arrived is read first, and a session with something unanswered is let go
            later than others, while there is time; what stays unanswered the client offers again
            under the same `ref`.
        Bound: returns within `within_s` and two steps.
    """
    loop = asyncio.get_running_loop()
    for _ in range(2):  # between two timers the loop has looked at every socket
        await asyncio.sleep(STEP_S / 2)
    waiting = collections.deque(sessions)
    rng.shuffle(waiting)
    spread_ms = spread_ms_of(len(waiting), reconnects_per_s)
    deadline = loop.time() + within_s
    size = max(BYES_PER_STEP, -(-len(waiting) // max(1, int(within_s / STEP_S))))
    while waiting:
        is_late = loop.time() >= deadline
        for _ in range(len(waiting) if is_late else min(size, len(waiting))):
            session = waiting.popleft()
            if session.is_busy and not is_late:
                waiting.append(session)
                continue
            wait_ms = RETRY_FIRST_MS + rng.randrange(spread_ms)
            session.bye(Close.SHUTDOWN, REASON, wait_ms)
        if waiting:
            await asyncio.sleep(STEP_S)


async def poll_until(is_done: Callable[[], bool], within_s: float) -> None:
    """Return when it is done, or when the time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not is_done() and loop.time() < deadline:  # noqa: ASYNC110  # what is waited for has no event
        await asyncio.sleep(STEP_S)
