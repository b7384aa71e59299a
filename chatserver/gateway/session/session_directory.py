"""Session directory: registers sessions on this gateway and across all gateways.

A device has one session and a user at most `sessions_per_user_max`, across all gateways. Redis
decides (`chatserver.hot.users.session_directory`). The gateway of a replaced session is notified by
mailbox and closes it with 3004. Registering and removing sessions also updates presence and
releases the user's rate limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from chatserver.container import GatewayContainer
from chatserver.domain.access.logins import Marks
from chatserver.domain.ids import GatewayId, SessionId, UserId
from chatserver.domain.presence import PresenceChange
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.session_registry import SessionRegistry
from chatserver.hot.bus.mailbox import PresenceMail, Replaced
from chatserver.hot.users.session_directory import Claim
from chatserver.protocol.codes import Close

log = structlog.get_logger()

LOOKS_AT_ONCE_MAX = 500
REPLACED = "another session took the place: the same device, or one too many"


class Post(Protocol):
    """Sends mailbox records to gateways."""

    def post(self, gateway: GatewayId, record: Replaced | PresenceMail) -> None: ...


class SessionDirectory:
    """Session directory of one gateway."""

    def __init__(
        self, gateway: GatewayId, registry: SessionRegistry, parts: GatewayContainer
    ) -> None:
        self._gateway = gateway
        self._registry = registry
        self._parts = parts

    def take(self, session: Session) -> None:
        """Register a new session here, and close an older one of the same device."""
        user = session.user
        twin = self._registry.find_device(user, session.device)
        if twin is not None:
            twin.bye(Close.REPLACED, REPLACED)
        self._registry.add(user, session)
        self._parts.attendance.add_session(user, session.attention)

    async def claim(self, sessions: Sequence[Session]) -> None:
        """Register sessions across all gateways, and close the sessions that they replace.

        Raises:
            Unavailable: Redis does not answer.
        """
        claims = [Claim(each.user, each.id, each.device, each.started_ms) for each in sessions]
        claimed = await self._parts.sessions.claim(claims)
        for session, found in zip(sessions, claimed, strict=True):
            session.started_ms = found.started_ms
            for loser, gateway in found.replaced:
                if gateway == self._gateway:
                    self.replaced(session.user, loser)
                else:
                    self._parts.postman.post(gateway, Replaced(session.user, loser))
            if not session.is_live:  # it ended meanwhile
                self._parts.sessions.release(session.user, session.id)

    def replaced(self, user: UserId, name: SessionId) -> None:
        """Close a local session that was replaced by another one."""
        for session in list(self._registry.sessions_of(user)):
            if session.id == name:
                session.bye(Close.REPLACED, REPLACED)

    def revoked(self, user: UserId, marks: Marks, reason: str) -> None:
        """Close the user's local sessions that the revocation covers."""
        for session in list(self._registry.sessions_of(user)):
            session.revoked(marks, reason)

    async def look_for_revoked(self) -> None:
        """Check all local users for revocations, because mail to this gateway may be lost.

        Raises:
            Unavailable: Redis does not answer.
        """
        users = self._registry.users()
        for at in range(0, len(users), LOOKS_AT_ONCE_MAX):
            chunk = users[at : at + LOOKS_AT_ONCE_MAX]
            found = await asyncio.gather(*map(self._parts.entrance.find_marks, chunk))
            for user, marks in zip(chunk, found, strict=True):
                self.revoked(user, marks, "")

    def leave(self, session: Session) -> bool:
        """Unregister an ended session; return True if it was the user's last one here."""
        user, parts = session.user, self._parts
        if session not in self._registry.sessions_of(user):
            return False
        parts.attendance.remove_session(user, session.attention)
        parts.watching.remove_subscriber(session)
        parts.sessions.release(user, session.id)
        if not self._registry.remove(user, session):
            return False
        parts.limits.give_back("sends", user)
        parts.limits.give_back("requests", user)
        parts.limits.give_back("memory", user)
        return True

    async def keep(self, *, is_doubtful: bool) -> None:
        """Renew this gateway's session data in Redis, and rewrite it if it may be lost.

        Raises:
            Unavailable: Redis does not answer.
        """
        if not await self._parts.seen.keep_alive() or is_doubtful:
            self._parts.attendance.republish_all()
            await self.claim(list(self._registry))
        await self._parts.watching.refresh()

    def tell(self, news: PresenceChange) -> None:
        """Send a presence change to the subscribed gateways."""
        sight = news.sight
        for gateway in news.watchers:
            if gateway == self._gateway:
                self._parts.watching.handle_change(news.user, sight)
            else:
                mail = PresenceMail(news.user, sight.state.value, sight.last_ms, sight.version)
                self._parts.postman.post(gateway, mail)
