"""Presence of the users connected to this gateway.

A user's state is derived from the attention of their sessions. Changes are published to Redis in
batches; Redis combines the states of all gateways (`chatserver.hot.users.presence_subscriptions`).
Flapping is damped here: the state of a closed session counts for another `offline_grace_s`, so a
device that reconnects in time causes no notification.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from chatserver import config
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.domain.presence import (
    GatewayPresence,
    PresenceChange,
    SessionActivity,
    State,
    best_of,
)
from chatserver.errors import ChatError

log = structlog.get_logger()

LAST_SEEN_TTL_S = 604_800.0
TICK_S_MAX = 1.0
IDLE_LOOKS = 8  # idle checks within `away_after_s`
LOOK_CHUNK = 500
RESAY_SHARE = 3


class PresencePublisher(Protocol):
    """Publishes states to Redis."""

    async def announce(self, appearances: Sequence[GatewayPresence]) -> list[PresenceChange]: ...


class _Here:
    """A user of this gateway: sessions, lingering state of closed ones, last published state."""

    __slots__ = ("attentions", "lingering", "said", "until", "used_at")

    def __init__(self) -> None:
        self.attentions: list[SessionActivity] = []
        self.lingering = State.OFFLINE
        self.until = 0.0
        self.said: State | None = None
        self.used_at = 0.0  # when a session was closed, or the user was last active


class UserPresence:
    """Presence of the users of one gateway. `on_news` is called with changes for subscribers."""

    def __init__(
        self, announcer: PresencePublisher, settings: config.Presence, clock: Clock
    ) -> None:
        self._announcer = announcer
        self._settings = settings
        self._clock = clock
        self.on_news: Callable[[PresenceChange], None] = lambda news: None
        self._here: dict[UserId, _Here] = {}
        self._lingering: set[UserId] = set()
        self._changed: set[UserId] = set()
        self._wake = asyncio.Event()
        # The grace period ends between two ticks, so a tick is a small part of it.
        self._tick_s = min(
            TICK_S_MAX, settings.away_after_s / IDLE_LOOKS, max(0.02, settings.offline_grace_s / 4)
        )

    # session events

    def arrived(self, user: UserId, attention: SessionActivity) -> None:
        """Add a session."""
        self._here.setdefault(user, _Here()).attentions.append(attention)
        self._touch(user)

    def left(self, user: UserId, attention: SessionActivity) -> None:
        """Remove a session; its state lingers for the grace period."""
        here = self._here.get(user)
        if here is None or attention not in here.attentions:
            return
        now = self._clock.monotonic()
        here.lingering = self._state_of(here, now)
        here.attentions.remove(attention)
        here.until = here.used_at = now
        if self._settings.offline_grace_s > 0:
            here.until += self._settings.offline_grace_s
            self._lingering.add(user)
        self._touch(user)

    def turned(self, user: UserId, attention: SessionActivity) -> None:
        """Record that the user was active in a session, or moved it to foreground or background."""
        attention.use(self._clock.monotonic())
        self._touch(user)

    def new_attention(self, *, is_foreground: bool) -> SessionActivity:
        """Return the attention of a new session."""
        return SessionActivity(self._clock.monotonic(), is_foreground=is_foreground)

    def say_all_again(self) -> None:
        """Publish all states again: Redis may have lost them, or considered this gateway dead."""
        for user, here in self._here.items():
            here.said = None
            self._changed.add(user)
        self._wake.set()

    def _touch(self, user: UserId) -> None:
        self._changed.add(user)
        self._wake.set()

    def _state_of(self, here: _Here, now: float) -> State:
        away_after_s = self._settings.away_after_s
        state = best_of(each.state_at(now, away_after_s) for each in here.attentions)
        return best_of((state, here.lingering)) if now < here.until else state

    # publishing

    async def run(self) -> None:
        """Publish changes until cancelled."""
        look_s = self._settings.away_after_s / IDLE_LOOKS
        resay_s = LAST_SEEN_TTL_S / RESAY_SHARE
        looked_at = resaid_at = self._clock.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tick_s):
                    await self._wake.wait()
            self._wake.clear()
            now = self._clock.monotonic()
            self._end_graces(now)
            if now - looked_at >= look_s:
                looked_at = now
                await self._look_around()
            if now - resaid_at >= resay_s:  # before the published states expire
                resaid_at = now
                self.say_all_again()
            await self._say()

    def _end_graces(self, now: float) -> None:
        over = {user for user in self._lingering if self._here[user].until <= now}
        self._lingering -= over
        self._changed |= over

    async def _look_around(self) -> None:
        """Find users who have become idle."""
        for n, (user, here) in enumerate(list(self._here.items()), 1):
            now = self._clock.monotonic()
            for attention in here.attentions:
                attention.look(now)
            if here.said is State.ONLINE and self._state_of(here, now) is not State.ONLINE:
                self._changed.add(user)
            if n % LOOK_CHUNK == 0:
                await asyncio.sleep(0)

    async def _say(self) -> None:
        now = self._clock.monotonic()
        changed, self._changed = self._changed, set()
        saying: list[GatewayPresence] = []
        for user in changed:
            here = self._here.get(user)
            if here is None:
                continue
            state = self._state_of(here, now)
            if state is not here.said:
                here.said = state
                used_at = max([here.used_at, *(each.used_at for each in here.attentions)])
                saying.append(GatewayPresence(user, state, now - used_at))
            if state is State.OFFLINE:
                del self._here[user]
                self._lingering.discard(user)
        if not saying:
            return
        try:
            news = await self._announcer.announce(saying)
        except ChatError as exc:
            log.warning("presence.not_said", error=exc.message)
            self._say_later(saying)
            await asyncio.sleep(self._tick_s)
            return
        for one in news:
            if one.is_changed:
                self.on_news(one)

    def _say_later(self, failed: list[GatewayPresence]) -> None:
        for appearance in failed:
            # A user who left stays registered until that is published.
            here = self._here.setdefault(appearance.user, _Here())
            here.said = None
            here.used_at = max(here.used_at, self._clock.monotonic() - appearance.ago_s)
            self._changed.add(appearance.user)
