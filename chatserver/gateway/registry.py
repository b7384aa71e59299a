"""The sessions of one gateway, by user, and the bounds on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chatserver.domain.ids import DeviceId, UserId

if TYPE_CHECKING:
    from chatserver.gateway.session import Session


class Registry:
    """Who is here. `by_user` has no empty lists, and is for reading only."""

    def __init__(self) -> None:
        self.by_user: dict[UserId, list[Session]] = {}
        self.count = 0

    def add(self, user: UserId, session: Session) -> None:
        """Take a session in."""
        self.by_user.setdefault(user, []).append(session)
        self.count += 1

    def remove(self, user: UserId, session: Session) -> bool:
        """Take a session out; True if it was the user's last one here."""
        sessions = self.by_user.get(user)
        if sessions is None or session not in sessions:
            return False
        sessions.remove(session)
        self.count -= 1
        if sessions:
            return False
        del self.by_user[user]
        return True

    def sessions_of(self, user: UserId) -> list[Session]:
        """Return the user's sessions here, oldest first; do not keep the list."""
        return self.by_user.get(user, _NOBODY)

    def find_device(self, user: UserId, device: DeviceId) -> Session | None:
        """Return the user's session on that device."""
        for session in self.sessions_of(user):
            if session.device == device:
                return session
        return None

    def users(self) -> list[UserId]:
        """Return who is here."""
        return list(self.by_user)

    def __iter__(self) -> Iterator[Session]:
        for sessions in list(self.by_user.values()):
            yield from list(sessions)


_NOBODY: list[Session] = []
