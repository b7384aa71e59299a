"""Presence of the users connected to this gateway.

A user's presence is derived from the activity in their sessions. Changes are published to Redis in
batches. Redis combines the presence from all gateways
(`chatserver.hot.users.presence_states`). The state of a closed session counts for another
`offline_grace_s`, so a device that reconnects in time causes no notification.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from chatserver import config
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.domain.presence import (
    GatewayPresence,
    PresenceChange,
    PresenceState,
    SessionActivity,
    get_best_state,
)
from chatserver.errors import ChatError
from chatserver.hot.users.presence_states import LAST_SEEN_TTL_S, PresenceStates

log = structlog.get_logger()

TICK_S_MAX = 1.0
IDLE_CHECKS = 8  # how many times per `away_after_s` users are checked for inactivity
USERS_CHECKED_AT_ONCE = 500
REPUBLISHES = 3  # number of times that a presence is republished per `LAST_SEEN_TTL_S`


class _User:
    """A connected user: sessions, state of closed sessions, and last published state.

    `closed_state` counts until `closed_until`, the end of the grace period.
    """

    __slots__ = ("closed_state", "closed_until", "published", "sessions", "used_at")

    def __init__(self) -> None:
        self.sessions: list[SessionActivity] = []
        self.closed_state = PresenceState.OFFLINE
        self.closed_until = 0.0
        self.published: PresenceState | None = None
        self.used_at = 0.0  # last activity in closed sessions; open sessions record their own


class UserPresence:
    """Presence of one gateway's users."""

    def __init__(self, states: PresenceStates, settings: config.Presence, clock: Clock) -> None:
        self._states = states
        self._settings = settings
        self._clock = clock
        self._users: dict[UserId, _User] = {}
        self._in_grace: set[UserId] = set()
        self._changed: set[UserId] = set()
        self._wake = asyncio.Event()
        # `run` checks at this interval whether grace periods have ended.
        self._tick_s = min(
            TICK_S_MAX, settings.away_after_s / IDLE_CHECKS, max(0.02, settings.offline_grace_s / 4)
        )

    # session events

    def create_activity(self, *, is_foreground: bool) -> SessionActivity:
        """Return an activity tracker for a new session; pass it to `add_session`."""
        return SessionActivity(self._clock.monotonic(), is_foreground=is_foreground)

    def add_session(self, user: UserId, activity: SessionActivity) -> None:
        self._users.setdefault(user, _User()).sessions.append(activity)
        self._mark_changed(user)

    def remove_session(self, user: UserId, activity: SessionActivity) -> None:
        """Remove a session; its state counts until the grace period ends."""
        local = self._users.get(user)
        if local is None or activity not in local.sessions:
            return
        now = self._clock.monotonic()
        local.closed_state = self._get_state(local, now)
        local.sessions.remove(activity)
        local.closed_until = local.used_at = now
        if self._settings.offline_grace_s > 0:
            local.closed_until += self._settings.offline_grace_s
            self._in_grace.add(user)
        self._mark_changed(user)

    def record_activity(self, user: UserId, activity: SessionActivity) -> None:
        """Record that the user was active in a session, or that the app changed visibility."""
        activity.record_use(self._clock.monotonic())
        self._mark_changed(user)

    def republish_all(self) -> None:
        """Publish the presence of all users again, because Redis may have lost it."""
        for user, local in self._users.items():
            local.published = None
            self._changed.add(user)
        self._wake.set()

    def _mark_changed(self, user: UserId) -> None:
        self._changed.add(user)
        self._wake.set()

    def _get_state(self, local: _User, now: float) -> PresenceState:
        away_after_s = self._settings.away_after_s
        state = get_best_state(
            session.get_state_at(now, away_after_s) for session in local.sessions
        )
        return get_best_state((state, local.closed_state)) if now < local.closed_until else state

    # publishing

    async def run(self, on_change: Callable[[PresenceChange], None]) -> None:
        """Publish changes until cancelled; call `on_change` if the overall presence changes."""
        check_s = self._settings.away_after_s / IDLE_CHECKS
        republish_s = LAST_SEEN_TTL_S / REPUBLISHES
        checked_at = republished_at = self._clock.monotonic()
        while True:
            wait_s = self._tick_s if self._in_grace or self._changed else check_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            self._wake.clear()
            now = self._clock.monotonic()
            self._end_grace(now)
            if now - checked_at >= check_s:
                checked_at = now
                await self._find_idle()
            if now - republished_at >= republish_s:  # republish before the states expire in Redis
                republished_at = now
                self.republish_all()
            await self._publish(on_change)

    def _end_grace(self, now: float) -> None:
        ended = {user for user in self._in_grace if self._users[user].closed_until <= now}
        self._in_grace -= ended
        self._changed |= ended

    async def _find_idle(self) -> None:
        for number, (user, local) in enumerate(list(self._users.items()), 1):
            now = self._clock.monotonic()
            for activity in local.sessions:
                activity.update(now)
            if (
                local.published is PresenceState.ONLINE
                and self._get_state(local, now) is not PresenceState.ONLINE
            ):
                self._changed.add(user)
            if number % USERS_CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _publish(self, on_change: Callable[[PresenceChange], None]) -> None:
        now = self._clock.monotonic()
        changed, self._changed = self._changed, set()
        batch: list[GatewayPresence] = []
        for user in changed:
            local = self._users.get(user)
            if local is None:
                continue
            state = self._get_state(local, now)
            if state is not local.published:
                local.published = state
                used_at = max([local.used_at, *(session.used_at for session in local.sessions)])
                batch.append(GatewayPresence(user, state, now - used_at))
            if state is PresenceState.OFFLINE:
                del self._users[user]
                self._in_grace.discard(user)
        if not batch:
            return
        try:
            changes = await self._states.publish(batch)
        except ChatError as exc:
            log.warning("presence.publish_failed", error=exc.message)
            self._retry_later(batch)
            await asyncio.sleep(self._tick_s)
            return
        for change in changes:
            if change.is_changed:
                on_change(change)

    def _retry_later(self, failed: list[GatewayPresence]) -> None:
        for presence in failed:
            # Even a user without sessions stays registered until the offline state is published.
            local = self._users.setdefault(presence.user, _User())
            local.published = None
            local.used_at = max(local.used_at, self._clock.monotonic() - presence.ago_s)
            self._changed.add(presence.user)
