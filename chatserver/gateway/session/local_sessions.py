"""Local sessions: this gateway's sessions by user."""

from __future__ import annotations

from collections.abc import Iterator

from chatserver.domain.ids import DeviceId, UserId
from chatserver.gateway.session.session import Session


class LocalSessions:
    """Sessions by user. Callers must not change `by_user`; it contains no empty lists."""

    def __init__(self) -> None:
        self.by_user: dict[UserId, list[Session]] = {}
        self.count = 0

    def add(self, user: UserId, session: Session) -> None:
        self.by_user.setdefault(user, []).append(session)
        self.count += 1

    def remove(self, user: UserId, session: Session) -> bool:
        """Remove a session; return True if it was the user's last one on this gateway."""
        sessions = self.by_user.get(user)
        if sessions is None or session not in sessions:
            return False
        sessions.remove(session)
        self.count -= 1
        if sessions:
            return False
        del self.by_user[user]
        return True

    def list_sessions(self, user: UserId) -> list[Session]:
        """Return the user's sessions on this gateway, oldest first.

        The list is the registry's own: do not change it, or keep it across an `await`.
        """
        return self.by_user.get(user, _NO_SESSIONS)

    def find_device(self, user: UserId, device: DeviceId) -> Session | None:
        for session in self.list_sessions(user):
            if session.device == device:
                return session
        return None

    def list_users(self) -> list[UserId]:
        return list(self.by_user)

    def __iter__(self) -> Iterator[Session]:
        for sessions in list(self.by_user.values()):
            yield from list(sessions)


_NO_SESSIONS: list[Session] = []
