"""The places that sessions take: here, and among their users' sessions on all gateways.

A device has one session and a user at most `sessions_per_user_max`, wherever they are connected.
Redis decides (`chatserver.hot.sessions`); whoever loses the place is told by mailbox and closed
with 3004. The same comings and goings make presence, and let go of the user's rate limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from chatserver.app import GatewayParts
from chatserver.domain.ids import GatewayId, SessionId, UserId
from chatserver.domain.logins import Marks
from chatserver.domain.presence import News
from chatserver.gateway.registry import Registry
from chatserver.gateway.session import Session
from chatserver.hot.mailbox import Replaced, SightMail
from chatserver.hot.sessions import Claim
from chatserver.protocol.codes import Close

log = structlog.get_logger()

LOOKS_AT_ONCE_MAX = 500
REPLACED = "another session took the place: the same device, or one too many"


class Post(Protocol):
    """Sends records to gateways."""

    def post(self, gateway: GatewayId, record: Replaced | SightMail) -> None: ...


class Places:
    """The places of one gateway's sessions."""

    def __init__(self, gateway: GatewayId, registry: Registry, parts: GatewayParts) -> None:
        self._gateway = gateway
        self._registry = registry
        self._parts = parts

    def take(self, session: Session) -> None:
        """A session begins: it has its place here at once, and that of an older twin."""
        user = session.user
        twin = self._registry.find_device(user, session.device)
        if twin is not None:
            twin.bye(Close.REPLACED, REPLACED)
        self._registry.add(user, session)
        self._parts.attendance.arrived(user, session.attention)

    async def claim(self, sessions: Sequence[Session]) -> None:
        """Enter sessions among those of all gateways, and close what they replace.

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
        """A session here has lost its place."""
        for session in list(self._registry.sessions_of(user)):
            if session.id == name:
                session.bye(Close.REPLACED, REPLACED)

    def revoked(self, user: UserId, marks: Marks, reason: str) -> None:
        """Something of a user was ended: close the sessions here that it concerns."""
        for session in list(self._registry.sessions_of(user)):
            session.revoked(marks, reason)

    async def look_for_revoked(self) -> None:
        """Find out what was ended while mail to this gateway may have been lost.

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
        """A session is over; True if it was its user's last one here."""
        user, parts = session.user, self._parts
        if session not in self._registry.sessions_of(user):
            return False
        parts.attendance.left(user, session.attention)
        parts.watching.gone(session)
        parts.sessions.release(user, session.id)
        if not self._registry.remove(user, session):
            return False
        parts.limits.give_back("sends", user)
        parts.limits.give_back("requests", user)
        parts.limits.give_back("memory", user)
        return True

    async def keep(self, *, is_doubtful: bool) -> None:
        """Keep what Redis knows of this gateway's sessions, and say it again if that is in doubt.

        Raises:
            Unavailable: Redis does not answer.
        """
        if not await self._parts.seen.keep_alive() or is_doubtful:
            self._parts.attendance.say_all_again()
            await self.claim(list(self._registry))
        await self._parts.watching.look_again()

    def tell(self, news: News) -> None:
        """Bring a change of presence to the gateways that watch."""
        sight = news.sight
        for gateway in news.watchers:
            if gateway == self._gateway:
                self._parts.watching.heard(news.user, sight)
            else:
                mail = SightMail(news.user, sight.state.value, sight.last_ms, sight.version)
                self._parts.postman.post(gateway, mail)
