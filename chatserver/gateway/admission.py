"""Who may come in, by address: handshakes and refused hellos are limited, over all gateways.

An address that is known to have used up its share is refused before any work, with 429 and the time
to wait. Where only Redis knows, the handshake goes on while it is asked: whoever turns out to be
too much is closed with 3002, so that every connection is paid for or over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from websockets.http11 import Request

from chatserver.domain.addresses import Network, client_address, subject_of
from chatserver.hot.limits import Allowance, Limits
from chatserver.protocol.codes import Close
from chatserver.telemetry import metrics

FORWARDED = "X-Forwarded-For"


class Guest(Protocol):
    """A connection that has just been opened."""

    def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None: ...


class Admission:
    """The door of one gateway."""

    def __init__(self, limits: Limits, trusted: Sequence[Network]) -> None:
        self._limits = limits
        self._trusted = trusted

    def address_of(self, peer: str, request: Request) -> str:
        """Return the address of the client behind `peer`."""
        return client_address(peer, request.headers.get_all(FORWARDED), self._trusted)

    def wait_s(self, address: str) -> int:
        """Return how many seconds the address has to wait before it may connect; 0: it may."""
        subject = subject_of(address)
        failures = self._limits.find("failures", subject)
        connections = self._limits.find("connections", subject)
        waits = [each.wait_ms() for each in (failures, connections) if each.tokens <= 0]
        return math.ceil(max(waits, default=0) / 1000)

    def opened(self, guest: Guest, address: str) -> None:
        """Have a new connection paid for."""
        self._pay(self._limits.find("connections", subject_of(address)), guest)

    def _pay(self, allowance: Allowance, guest: Guest) -> None:
        if allowance.take():
            return
        wait_ms = allowance.wait_ms()
        if wait_ms:
            metrics.RATE_LIMITED.labels("connections").inc()
            guest.bye(Close.OVERLOADED, "too many connections from this address", wait_ms)
        else:
            allowance.ask(lambda: self._pay(allowance, guest))

    def failed(self, address: str) -> None:
        """Count a hello that was refused."""
        _charge(self._limits.find("failures", subject_of(address)))


def _charge(allowance: Allowance) -> None:
    """Take a token of a bucket, or learn that it is empty: of many failures at once each counts."""
    if not allowance.take() and not allowance.wait_ms():
        allowance.ask(lambda: _charge(allowance))
