"""Reconnect policy: whether and when to reconnect. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from chatserver.errors import ChatError, Conflict, Unauthenticated
from chatserver.protocol.error_codes import Close

WAIT_S_MIN = 0.5
WAIT_S_MAX = 10.0
REPLACED_S = 60.0  # stop reconnecting after two closes with code `replaced` within this time
STABLE_S = 5.0  # a connection must last this long to reset the backoff


@attrs.define(eq=False, repr=False)
class ReconnectPolicy:
    """Decides after each close whether the client reconnects, and when.

    The delay is an exponential backoff with full jitter, so that clients do not reconnect in
    lockstep.
    """

    _uniform: Callable[[float, float], float]
    _attempts: int = attrs.field(default=0, init=False)
    _replaced_at: float = attrs.field(default=float("-inf"), init=False)
    _refusals: int = attrs.field(default=0, init=False)  # consecutive token rejections

    def record_duration(self, seconds: float) -> None:
        """Record how long a connection was open; a stable connection resets the backoff."""
        if seconds >= STABLE_S:
            self._attempts = 0

    def next_s(self, advice_ms: int | None = None) -> float:
        """Return the delay before the next attempt, never less than the server advises."""
        self._attempts += 1
        bound = min(WAIT_S_MAX, WAIT_S_MIN * 2 ** min(self._attempts, 10))
        if advice_ms is not None:
            return advice_ms / 1000 + self._uniform(0.0, WAIT_S_MIN)
        return max(WAIT_S_MIN, self._uniform(0.0, bound))

    def record_welcome(self) -> None:
        """Record that the gateway accepted the token."""
        self._refusals = 0

    def handle_close(
        self, code: int, reason: str, now: float, *, can_renew: bool, device: str
    ) -> None:
        """Return if the client should reconnect; otherwise, raise.

        `can_renew`: the client can get a new token.

        Raises:
            Unauthenticated: the token was rejected and cannot be renewed, or the renewed token was
            rejected, too.
            Conflict: another process uses the same device.
            ChatError: the close code forbids reconnecting.
        """
        if code == Close.UNAUTHENTICATED:
            self._refusals += 1
            if not can_renew or self._refusals > 1:
                raise Unauthenticated(f"the gateway refused the token: {reason}")
        elif code == Close.REPLACED:
            if now - self._replaced_at < REPLACED_S:
                raise Conflict(f"another process uses device {device}")
            self._replaced_at = now
        elif 3500 <= code <= 3999:
            raise ChatError(f"the gateway closed the session: {reason}")
