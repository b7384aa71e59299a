"""Graceful draining: close sessions in batches; each session gets its own reconnect delay.

::

    refuse new connections ─► bye to each session once its sends are answered ─► deadline ─► abort
                              (spread over half of `drain_s`)

The reconnect delay in each `bye` is random. Its maximum grows with the number of sessions, up to
`SPREAD_MS_MAX`, so that the other gateways see about `reconnects_per_s` reconnects per second.
"""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Callable, Iterable

from chatserver.gateway.session.session import Session
from chatserver.protocol.error_codes import Close

DRAIN_RECONNECTS_PER_S = 1000  # target rate of the reconnects when a process stops
REFUSALS_S = 0.25  # maximum time to send refusals to the last accepted connections
FAN_OUTS_S = 1.0  # minimum time to deliver the last accepted messages, even after `drain_s`
REASON = "this gateway is restarting"
STEP_S = 0.05
BYES_PER_STEP_MIN = 20  # minimum `bye` frames per `STEP_S`, so that a few sessions drain quickly
RETRY_FIRST_MS = 100
SPREAD_MS_MIN = 500
SPREAD_MS_MAX = 60_000


class StopRequest:
    """A request to drain and stop. If sibling processes serve the port, `releases_port` is set.

    In this case, the listener is closed before the drain instead of after it.
    """

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.releases_port = False

    def set(self, *, releases_port: bool = False) -> None:
        self.releases_port |= releases_port
        self._requested.set()

    async def wait(self) -> None:
        await self._requested.wait()


def compute_spread_ms(sessions: int, reconnects_per_s: int) -> int:
    """Return the time in ms over which to spread the reconnects of `sessions` sessions."""
    return min(max(SPREAD_MS_MIN, sessions * 1000 // reconnects_per_s), SPREAD_MS_MAX)


async def send_byes(
    sessions: Iterable[Session], within_s: float, reconnects_per_s: int, rng: random.Random
) -> None:
    """Send a `bye` to every session.

    Guarantees:
        Responses: frames that have already arrived are handled first. Until the deadline, a session
            with unanswered requests stays open.
        Bound: returns within `within_s` plus `2 * STEP_S`.
    """
    loop = asyncio.get_running_loop()
    for _ in range(2):  # Let the event loop handle frames that have arrived.
        await asyncio.sleep(STEP_S / 2)
    waiting = collections.deque(sessions)
    rng.shuffle(waiting)
    spread_ms = compute_spread_ms(len(waiting), reconnects_per_s)
    deadline = loop.time() + within_s
    size = max(BYES_PER_STEP_MIN, -(-len(waiting) // max(1, int(within_s / STEP_S))))
    while waiting:
        is_late = loop.time() >= deadline
        for _ in range(len(waiting) if is_late else min(size, len(waiting))):
            session = waiting.popleft()
            if session.is_busy and not is_late:
                waiting.append(session)
                continue
            wait_ms = RETRY_FIRST_MS + rng.randrange(spread_ms)
            session.close(Close.SHUTDOWN, REASON, wait_ms)
        if waiting:
            await asyncio.sleep(STEP_S)


async def poll_until(is_done: Callable[[], bool], within_s: float) -> None:
    """Poll until `is_done` returns True or `within_s` has passed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not is_done() and loop.time() < deadline:  # noqa: ASYNC110  # the condition has no event
        await asyncio.sleep(STEP_S)
