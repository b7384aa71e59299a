"""Whether what Redis is given for this gateway comes back to it: mail that it sends to itself.

Deliveries of other gateways take the same way. A connection that is up and a Redis that answers do
not prove it: the reader of the mailbox has a connection of its own, and may be stuck.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.jitter import jittered
from chatserver.hot.mailbox import Echo

log = structlog.get_logger()

INTERVAL_S: Final = 2.0
FIRST_S: Final = 0.1  # between tries until the first one came
LATE_S: Final = 6.0  # so long nothing came back: three times nothing, or Redis is as slow


class OwnMailbox(Protocol):
    """The mailbox of this gateway."""

    def send_to_self(self, echo: Echo) -> None: ...


class SelfMail:
    """Sends mail to its own gateway, and notes what comes back."""

    def __init__(self, mailbox: OwnMailbox, clock: Clock) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._number = 0
        self._heard_at: float | None = None
        self._is_late = False

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._number += 1
            self._mailbox.send_to_self(Echo(self._number))
            if self._heard_at is None:
                # What is sent before the mailbox is read for the first time is nobody's.
                await asyncio.sleep(FIRST_S)
                continue
            await asyncio.sleep(jittered(INTERVAL_S))
            if bool(self.find_trouble()) != self._is_late:
                self._is_late = not self._is_late
                log.warning("gateway.own_mail_late" if self._is_late else "gateway.own_mail_back")

    def heard(self, echo: Echo) -> None:
        """Take what came back."""
        if echo.number <= self._number:
            self._heard_at = self._clock.monotonic()

    def find_trouble(self) -> str:
        """Return in words that nothing came back for too long; empty if it does."""
        if self._heard_at is None:
            return "its own mail has not come back yet"
        if self._clock.monotonic() - self._heard_at > LATE_S:
            return "its own mail does not come back from redis"
        return ""
