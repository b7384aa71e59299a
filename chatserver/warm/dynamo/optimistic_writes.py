"""Retries of optimistic writes: read, compute, and write on the condition that nothing changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError
from chatserver.warm.dynamo.client import ConditionFailed

T = TypeVar("T")
PAUSE_S: Final = 0.02  # upper limit of the random pause after the first attempt; then doubles
PAUSE_S_MAX: Final = 0.4


async def retry_lost_races(
    attempt: Callable[[], Awaitable[T]], error: ChatError, *, attempts_max: int
) -> T:
    """Run `attempt` until it does not raise `ConditionFailed`; return its result.

    Each attempt must read again what it changes, and everything in it may run again. This does not
    retry `Unavailable`: the client already has (`DynamoClient.retry`).

    Raises:
        error: `attempts_max` attempts have lost a race.
    """
    for number in range(attempts_max):
        try:
            return await attempt()
        except ConditionFailed as exc:
            last = exc
        if number + 1 < attempts_max:
            await asyncio.sleep(add_jitter(min(PAUSE_S * 2.0**number, PAUSE_S_MAX), 0))
    raise error from last
