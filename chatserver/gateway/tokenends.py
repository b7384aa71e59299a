"""When the tokens of sessions end: a session lives no longer than its token."""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A session, as far as it matters here."""

    def token_ended(self) -> None: ...


class TokenEnds:
    """Sessions by the second in which their tokens end: no timer for each, no walk through all."""

    def __init__(self) -> None:
        self._ends: dict[int, set[Holder]] = {}

    def put(self, session: Holder, ends_at: int) -> None:
        """Expect the end of a session's token, `ends_at` in seconds since 1970."""
        self._ends.setdefault(ends_at, set()).add(session)

    def remove(self, session: Holder, ends_at: int) -> None:
        """Expect it no more; nothing happens if it was not expected."""
        sessions = self._ends.get(ends_at)
        if sessions is not None:
            sessions.discard(session)
            if not sessions:
                del self._ends[ends_at]

    def take_due(self, now: float) -> list[Holder]:
        """Return the sessions whose tokens have ended, and forget them."""
        due = [second for second in self._ends if second <= now]
        return [session for second in due for session in self._ends.pop(second)]
