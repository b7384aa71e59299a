"""Presence states as seen by others: online, away or offline. Rules only, no I/O.

A user's state is the best of all sessions: online while one of them is in the foreground and was
used recently, away while all are hidden or idle, offline without sessions.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from chatserver.domain.ids import GatewayId, UserId


class State(enum.StrEnum):
    """Presence states, best first."""

    ONLINE = "online"
    AWAY = "away"
    OFFLINE = "offline"


_RANK = {State.ONLINE: 2, State.AWAY: 1, State.OFFLINE: 0}


def best_of(states: Iterable[State]) -> State:
    """Return the best of the states; offline if there is none."""
    return max(states, key=_RANK.__getitem__, default=State.OFFLINE)


@dataclasses.dataclass(frozen=True, slots=True)
class PresenceRecord:
    """The known presence of a user: `version` rises with each change, `last_ms` is since 1970."""

    state: State
    last_ms: int
    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayPresence:
    """The state of a user on one gateway; the last activity was `ago_s` seconds ago."""

    user: UserId
    state: State
    ago_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class PresenceChange:
    """A user's state over all gateways, and the gateways subscribed to changes."""

    user: UserId
    is_changed: bool
    sight: PresenceRecord
    watchers: tuple[GatewayId, ...]


class SessionActivity:
    """The user's activity in one session.

    `is_fresh` avoids reading the clock on the hot path. It stays set from one use until the owner's
    next periodic check, so recording another use costs one comparison.
    """

    __slots__ = ("is_foreground", "is_fresh", "used_at")

    def __init__(self, now: float, *, is_foreground: bool) -> None:
        self.is_foreground = is_foreground
        self.is_fresh = True
        self.used_at = now

    def use(self, now: float) -> None:
        """Record user activity."""
        self.is_fresh = True
        self.used_at = now

    def look(self, now: float) -> None:
        """Count a fresh session as used up to now, and reset `is_fresh` to detect the next use."""
        if self.is_fresh:
            self.used_at = now
            self.is_fresh = False

    def state_at(self, now: float, away_after_s: float) -> State:
        """Return the state of the user based on this session alone."""
        if self.is_foreground and (self.is_fresh or now - self.used_at < away_after_s):
            return State.ONLINE
        return State.AWAY
