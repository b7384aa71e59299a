"""When to come back after a connection ended, and whether at all. Pure: randomness is passed in."""

from __future__ import annotations

import enum
from collections.abc import Callable

from chatserver.protocol.codes import Close

WAIT_S_MIN = 0.5
WAIT_S_MAX = 10.0
REPLACED_S = 60.0  # replaced again within this: another process is this device
STEADY_S = 5.0  # a connection must last this long before the waits start over

Uniform = Callable[[float, float], float]


class Verdict(enum.Enum):
    """What a close means."""

    COME_BACK = "come back"
    NEW_TOKEN = "new token"  # noqa: S105  # a word, not a token
    REPLACED = "replaced"
    STOP = "stop"


def judge_close(code: int) -> Verdict:
    """Say what to do after a close code: 3500 to 3999 do not come back as they are."""
    if code == Close.UNAUTHENTICATED:
        return Verdict.NEW_TOKEN
    if code == Close.REPLACED:
        return Verdict.REPLACED
    return Verdict.STOP if 3500 <= code <= 3999 else Verdict.COME_BACK


class Backoff:
    """Full jitter: anything up to a bound that doubles, so that clients do not come in step."""

    def __init__(self, uniform: Uniform) -> None:
        self._uniform = uniform
        self._attempts = 0

    def lasted(self, seconds: float) -> None:
        """Take how long a connection was open."""
        if seconds >= STEADY_S:
            self._attempts = 0

    def next_s(self, advice_ms: int | None = None) -> float:
        """Return how long to wait. What the server asked for is never undercut."""
        self._attempts += 1
        bound = min(WAIT_S_MAX, WAIT_S_MIN * 2 ** min(self._attempts, 10))
        if advice_ms is not None:
            return advice_ms / 1000 + self._uniform(0.0, WAIT_S_MIN)
        return max(WAIT_S_MIN, self._uniform(0.0, bound))
