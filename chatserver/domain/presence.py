"""What others see of a user: online, away or offline. Rules only, no I/O.

A user is as present as the best of all sessions: online while one of them shows the application and
was used lately, away while there are only hidden or idle ones, offline when there is none.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from chatserver.domain.ids import GatewayId, UserId


class State(enum.StrEnum):
    """How present somebody is, from best to none."""

    ONLINE = "online"
    AWAY = "away"
    OFFLINE = "offline"


_RANK = {State.ONLINE: 2, State.AWAY: 1, State.OFFLINE: 0}


def best_of(states: Iterable[State]) -> State:
    """Return the best of the states; offline if there is none."""
    return max(states, key=_RANK.__getitem__, default=State.OFFLINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a user: `version` rises with each change, `last_ms` is since 1970."""

    state: State
    last_ms: int
    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class Appearance:
    """How present a user has been on one gateway, since `ago_s`."""

    user: UserId
    state: State
    ago_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class News:
    """A user's state over all gateways, and the gateways that want to know of a change."""

    user: UserId
    is_changed: bool
    sight: Sight
    watchers: tuple[GatewayId, ...]


class Attention:
    """How much attention one session gets from its user.

    `is_fresh` saves the hot path the clock: it stands from one use until the next look of the
    owner of these objects, so using a session that was used just now costs one comparison.
    """

    __slots__ = ("is_foreground", "is_fresh", "used_at")

    def __init__(self, now: float, *, is_foreground: bool) -> None:
        self.is_foreground = is_foreground
        self.is_fresh = True
        self.used_at = now

    def use(self, now: float) -> None:
        """The user did something."""
        self.is_fresh = True
        self.used_at = now

    def look(self, now: float) -> None:
        """Note that what is fresh was used up to now, and ask to be told of the next use."""
        if self.is_fresh:
            self.used_at = now
            self.is_fresh = False

    def state_at(self, now: float, away_after_s: float) -> State:
        """Return what this session alone makes of its user."""
        if self.is_foreground and (self.is_fresh or now - self.used_at < away_after_s):
            return State.ONLINE
        return State.AWAY
