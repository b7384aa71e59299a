"""Admission control: rate limits on handshakes and refused hellos, per address.

The limits apply across all gateways. If this gateway knows that an address is over its limit, the
handshake gets 429 with `Retry-After`. If Redis must be queried first, the handshake proceeds, and
a connection over the limit is closed with 3002.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from websockets.http11 import Request

from chatserver.domain.client_addresses import Network, get_subject, is_in, resolve_client_address
from chatserver.hot.users.token_buckets import Allowance, RateLimits
from chatserver.protocol.error_codes import Close
from chatserver.telemetry import metrics

UNAUTHENTICATED_MAX = 10_000  # maximum connections without an accepted `hello`
UNAUTHENTICATED_PER_ADDRESS_MAX = 1000  # per client address; trusted proxies have no limit

FORWARDED = "X-Forwarded-For"

Refuse = Callable[[int, str, int], None]  # (code, reason, retry_after_ms); closes a connection


class Admission:
    """Admission control of one gateway."""

    def __init__(self, limits: RateLimits, trusted: Sequence[Network]) -> None:
        self._limits = limits
        self._trusted = trusted

    def get_address(self, peer: str, request: Request) -> str:
        """Return the client's IP address; `peer` may be a trusted proxy."""
        return resolve_client_address(peer, request.headers.get_all(FORWARDED), self._trusted)

    def is_trusted(self, peer: str) -> bool:
        """Return whether `peer` is a trusted proxy, which connects for many clients."""
        return is_in(peer, self._trusted)

    def wait_s(self, address: str) -> int:
        """Return the seconds until the address is allowed to connect; 0 if it is allowed now."""
        subject = get_subject(address)
        failures = self._limits.find("failures", subject)
        connections = self._limits.find("connections", subject)
        waits = [bucket.wait_ms() for bucket in (failures, connections) if bucket.tokens <= 0]
        return math.ceil(max(waits, default=0) / 1000)

    def charge(self, address: str, refuse: Refuse) -> None:
        """Count a connection against the limit of `address`; call `refuse` if it is exceeded."""
        allowance = self._limits.find("connections", get_subject(address))
        if allowance.spend():
            return
        wait_ms = allowance.wait_ms()
        if wait_ms:
            metrics.RATE_LIMITED.labels("connections").inc()
            refuse(Close.OVERLOADED, "too many connections from this address", wait_ms)
        else:
            allowance.request(lambda: self.charge(address, refuse))

    def charge_failure(self, address: str) -> None:
        """Count a refused `hello` against the limit of its address."""
        _charge(self._limits.find("failures", get_subject(address)))


def _charge(allowance: Allowance) -> None:
    """Spend one token, fetching more from Redis first if needed."""
    if not allowance.spend() and not allowance.wait_ms():
        allowance.request(lambda: _charge(allowance))
