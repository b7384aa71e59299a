"""Token expiry index: a session ends no later than its token."""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A session whose token expires."""

    def token_ended(self) -> None: ...


class TokenExpiry:
    """Sessions by the second of their token's expiry, without per-session timers or full scans."""

    def __init__(self) -> None:
        self._ends: dict[int, set[Holder]] = {}

    def put(self, session: Holder, ends_at: int) -> None:
        """Track the expiry of a session's token; `ends_at` is in Unix seconds."""
        self._ends.setdefault(ends_at, set()).add(session)

    def remove(self, session: Holder, ends_at: int) -> None:
        """Stop tracking a session; no effect if it was not tracked."""
        sessions = self._ends.get(ends_at)
        if sessions is not None:
            sessions.discard(session)
            if not sessions:
                del self._ends[ends_at]

    def take_due(self, now: float) -> list[Holder]:
        """Remove and return the sessions whose tokens have expired."""
        due = [second for second in self._ends if second <= now]
        return [session for second in due for session in self._ends.pop(second)]
