"""How present the users of this gateway are, as others are to see it.

Each session's attention makes its user's state here; what changes is said to Redis, many users at
once, and Redis knows what it means over all gateways (`chatserver.hot.watching`). Flaps are damped
here: what a user loses with a session counts for `offline_grace_s` more, so a device that comes
back in time is told to nobody.
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
from chatserver.domain.presence import Appearance, Attention, News, State, best_of
from chatserver.errors import ChatError

log = structlog.get_logger()

TICK_S_MAX = 1.0
IDLE_LOOKS = 8  # how often somebody idle is looked at within `away_after_s`
LOOK_CHUNK = 500
RESAY_SHARE = 3


class Announcer(Protocol):
    """Where states are said."""

    async def announce(self, appearances: Sequence[Appearance]) -> list[News]: ...


class _Here:
    """A user of this gateway: sessions, what is left of lost ones, and what was said last."""

    __slots__ = ("attentions", "lingering", "said", "until", "used_at")

    def __init__(self) -> None:
        self.attentions: list[Attention] = []
        self.lingering = State.OFFLINE
        self.until = 0.0
        self.said: State | None = None
        self.used_at = 0.0  # when a session was lost, or its user did something


class Attendance:
    """The users of one gateway. `on_news` is told what others are to hear."""

    def __init__(self, announcer: Announcer, settings: config.Presence, clock: Clock) -> None:
        self._announcer = announcer
        self._settings = settings
        self._clock = clock
        self.on_news: Callable[[News], None] = lambda news: None
        self._here: dict[UserId, _Here] = {}
        self._lingering: set[UserId] = set()
        self._changed: set[UserId] = set()
        self._wake = asyncio.Event()
        # The grace ends between two ticks, so a tick is a small part of it.
        self._tick_s = min(
            TICK_S_MAX, settings.away_after_s / IDLE_LOOKS, max(0.02, settings.offline_grace_s / 4)
        )

    # what sessions tell

    def arrived(self, user: UserId, attention: Attention) -> None:
        """A session begins."""
        self._here.setdefault(user, _Here()).attentions.append(attention)
        self._touch(user)

    def left(self, user: UserId, attention: Attention) -> None:
        """A session is over; what it made of its user lingers."""
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

    def turned(self, user: UserId, attention: Attention) -> None:
        """The user did something with a session, showed it or hid it."""
        attention.use(self._clock.monotonic())
        self._touch(user)

    def new_attention(self, *, is_foreground: bool) -> Attention:
        """Return the attention of a session that begins."""
        return Attention(self._clock.monotonic(), is_foreground=is_foreground)

    def say_all_again(self) -> None:
        """Redis may have lost what was said, or taken this gateway for dead."""
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

    # what is said

    async def run(self) -> None:
        """Say what changes, until cancelled."""
        look_s = self._settings.away_after_s / IDLE_LOOKS
        resay_s = self._settings.last_seen_ttl_s / RESAY_SHARE
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
            if now - resaid_at >= resay_s:  # so that it does not expire
                resaid_at = now
                self.say_all_again()
            await self._say()

    def _end_graces(self, now: float) -> None:
        over = {user for user in self._lingering if self._here[user].until <= now}
        self._lingering -= over
        self._changed |= over

    async def _look_around(self) -> None:
        """Find who has gone idle."""
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
        saying: list[Appearance] = []
        for user in changed:
            here = self._here.get(user)
            if here is None:
                continue
            state = self._state_of(here, now)
            if state is not here.said:
                here.said = state
                used_at = max([here.used_at, *(each.used_at for each in here.attentions)])
                saying.append(Appearance(user, state, now - used_at))
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

    def _say_later(self, failed: list[Appearance]) -> None:
        for appearance in failed:
            # One who has left is known again until that is said.
            here = self._here.setdefault(appearance.user, _Here())
            here.said = None
            here.used_at = max(here.used_at, self._clock.monotonic() - appearance.ago_s)
            self._changed.add(appearance.user)
