"""Mailbox self-check: echo records that a gateway sends through Redis to its own mailbox.

Deliveries from other gateways take the same path. A working Redis connection does not prove that
path: the mailbox reader has its own connection, which may be stuck.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.jitter import jittered
from chatserver.hot.bus.mailbox import Echo

log = structlog.get_logger()

INTERVAL_S: Final = 2.0
FIRST_S: Final = 0.1  # interval until the first echo arrives
LATE_S: Final = 6.0  # without an echo: three were lost, or Redis is that slow


class OwnMailbox(Protocol):
    """The mailbox of this gateway."""

    def send_to_self(self, echo: Echo) -> None: ...


class MailboxCheck:
    """Sends echo records to its own mailbox and records when one arrives."""

    def __init__(self, mailbox: OwnMailbox, clock: Clock) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._number = 0
        self._heard_at: float | None = None
        self._is_late = False

    async def run(self) -> None:
        """Send echoes until cancelled."""
        while True:
            self._number += 1
            self._mailbox.send_to_self(Echo(self._number))
            if self._heard_at is None:
                # Records sent before the first mailbox read are lost.
                await asyncio.sleep(FIRST_S)
                continue
            await asyncio.sleep(jittered(INTERVAL_S))
            if bool(self.find_trouble()) != self._is_late:
                self._is_late = not self._is_late
                log.warning("gateway.own_mail_late" if self._is_late else "gateway.own_mail_back")

    def heard(self, echo: Echo) -> None:
        """Record the arrival of an echo."""
        if echo.number <= self._number:
            self._heard_at = self._clock.monotonic()

    def find_trouble(self) -> str:
        """Return an error text if no echo arrived for `LATE_S`; empty if the mailbox works."""
        if self._heard_at is None:
            return "its own mail has not come back yet"
        if self._clock.monotonic() - self._heard_at > LATE_S:
            return "its own mail does not come back from redis"
        return ""
