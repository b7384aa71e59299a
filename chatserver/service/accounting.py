"""Brings what this process spends in DynamoDB to the account that all processes share."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Final, Protocol

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.domain.spending import Part, Purse
from chatserver.errors import Unavailable

log = structlog.get_logger()

FLUSH_S: Final = 10.0
LAST_TIMEOUT_S: Final = 2.0


class Account(Protocol):
    """Where it is brought to."""

    async def add(self, part: Part) -> None: ...


class Accounting:
    """Empties a process's purse into the account, part by part."""

    def __init__(self, purse: Purse, account: Account, clock: Clock) -> None:
        self._purse = purse
        self._account = account
        self._clock = clock
        self._process = new_id()
        self._number = 0
        self._waiting: Part | None = None  # may be in the account: its answer did not come

    async def flush(self) -> None:
        """Bring there what was spent since.

        Guarantees:
            Nothing is counted twice: a part whose answer was lost is given again, as it was, before
            the next one. What is spent meanwhile stays in the purse, which has a bound.
            Cancellation: safe, likewise.

        Raises:
            Unavailable: not now.
        """
        while True:
            if self._waiting is None:
                spending = self._purse.take()
                if spending.is_empty:
                    return
                self._number += 1
                self._waiting = Part(self._process, self._number, self._day(), spending)
            await self._account.add(self._waiting)
            self._waiting = None

    def _day(self) -> str:
        return datetime.datetime.fromtimestamp(self._clock.time(), datetime.UTC).date().isoformat()

    async def run(self) -> None:
        """Flush now and then, until cancelled. Redis may be down meanwhile."""
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.flush()
            except Unavailable as exc:
                log.warning("cost.not_flushed", error=exc.message)


@contextlib.asynccontextmanager
async def keep_account(purse: Purse, account: Account, clock: Clock) -> AsyncIterator[None]:
    """Keep account while the block runs, and of its last seconds at its end."""
    accounting = Accounting(purse, account, clock)
    task = asyncio.create_task(accounting.run(), name="cost")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        try:
            async with asyncio.timeout(LAST_TIMEOUT_S):
                await accounting.flush()
        except (Unavailable, TimeoutError) as exc:
            log.warning("cost.not_flushed", error=str(exc))
