"""Session registration: on this gateway, and across all gateways.

Across all gateways, each device has at most one session and each user at most
`sessions_per_user_max` (enforced by `chatserver.hot.users.user_sessions`). If a session on another
gateway is replaced, that gateway is notified through its stream and closes the session with 3004.
Registering and removing sessions also updates presence. When a user's last session on a gateway
ends, unused rate limit tokens are returned to Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from chatserver.container.gateway import GatewayContainer
from chatserver.domain.access.logins import RevocationMarks
from chatserver.domain.ids import GatewayId, SessionId, UserId
from chatserver.domain.presence import PresenceChange
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.session import Session
from chatserver.hot.bus.gateway_stream import PresenceUpdate, Replaced
from chatserver.hot.users.user_sessions import Claim
from chatserver.protocol.error_codes import Close

log = structlog.get_logger()

USERS_PER_CHECK_MAX = 500
REPLACED = "replaced by another session of this device, or the session limit was exceeded"


class SessionRegistration:
    """Registers and removes the sessions of one gateway."""

    def __init__(
        self, gateway: GatewayId, registry: LocalSessions, container: GatewayContainer
    ) -> None:
        self._gateway = gateway
        self._registry = registry
        self._container = container

    def register(self, session: Session) -> None:
        """Register a new session on this gateway, and close an older session of the same device."""
        user = session.user
        older = self._registry.find_device(user, session.device)
        if older is not None:
            older.close(Close.REPLACED, REPLACED)
        self._registry.add(user, session)
        self._container.user_presence.add_session(user, session.activity)

    async def claim(self, sessions: Sequence[Session]) -> None:
        """Register sessions across all gateways, and close the older sessions that they replace.

        Raises:
            Unavailable: Redis does not respond.
        """
        claims = [
            Claim(claimant.user, claimant.id, claimant.device, claimant.started_ms)
            for claimant in sessions
        ]
        claimed = await self._container.sessions.claim(claims)
        for session, claimed_session in zip(sessions, claimed, strict=True):
            session.started_ms = claimed_session.started_ms
            for loser, gateway in claimed_session.replaced:
                if gateway == self._gateway:
                    self.close_replaced(session.user, loser)
                else:
                    self._container.gateway_stream_writer.send(
                        gateway, Replaced(session.user, loser)
                    )
            if not session.is_live:  # the session ended during the calls above
                self._container.sessions.release(session.user, session.id)

    def close_replaced(self, user: UserId, session_id: SessionId) -> None:
        """Close a local session that a newer one replaced."""
        for session in list(self._registry.list_sessions(user)):
            if session.id == session_id:
                session.close(Close.REPLACED, REPLACED)

    def apply_revocation(self, user: UserId, marks: RevocationMarks, reason: str) -> None:
        """Close the user's local sessions that the revocation covers."""
        for session in list(self._registry.list_sessions(user)):
            session.apply_revocation(marks, reason)

    async def check_revocations(self) -> None:
        """Check all local users for revocations that this gateway's stream may have lost.

        Raises:
            Unavailable: Redis does not respond.
        """
        users = self._registry.list_users()
        for start in range(0, len(users), USERS_PER_CHECK_MAX):
            chunk = users[start : start + USERS_PER_CHECK_MAX]
            chunk_marks = await asyncio.gather(
                *map(self._container.authentication.find_marks, chunk)
            )
            for user, marks in zip(chunk, chunk_marks, strict=True):
                self.apply_revocation(user, marks, "")

    def unregister(self, session: Session) -> bool:
        """Unregister an ended session; return True if it was the user's last on this gateway."""
        user, container = session.user, self._container
        if session not in self._registry.list_sessions(user):
            return False
        container.user_presence.remove_session(user, session.activity)
        container.presence_subscriptions.remove_subscriber(session)
        container.sessions.release(user, session.id)
        if not self._registry.remove(user, session):
            return False
        container.limits.return_tokens("sends", user)
        container.limits.return_tokens("requests", user)
        container.limits.return_tokens("memory", user)
        return True

    async def renew(self, *, is_loss_possible: bool) -> None:
        """Extend the TTL of this gateway's session data in Redis.

        If the data has expired or may be lost (`is_loss_possible`), write it again.

        Raises:
            Unavailable: Redis does not respond.
        """
        if not await self._container.presence_states.extend_expiry() or is_loss_possible:
            self._container.user_presence.republish_all()
            await self.claim(list(self._registry))
        await self._container.presence_subscriptions.refresh()

    def publish_presence(self, change: PresenceChange) -> None:
        """Send a presence change to the gateways that subscribe to the user."""
        record = change.record
        for gateway in change.subscribers:
            if gateway == self._gateway:
                self._container.presence_subscriptions.handle_change(change.user, record)
            else:
                update = PresenceUpdate(
                    change.user, record.state.value, record.last_ms, record.version
                )
                self._container.gateway_stream_writer.send(gateway, update)
