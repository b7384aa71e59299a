"""Presence states as seen by others: online, away or offline. Rules only, no I/O.

A user is online while a session is in the foreground and has been used recently, away while all
sessions are in the background or idle, and offline without sessions.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from chatserver.domain.ids import GatewayId, UserId


class PresenceState(enum.StrEnum):
    """Presence states, best first."""

    ONLINE = "online"
    AWAY = "away"
    OFFLINE = "offline"


_RANK = {PresenceState.ONLINE: 2, PresenceState.AWAY: 1, PresenceState.OFFLINE: 0}


def get_best_state(states: Iterable[PresenceState]) -> PresenceState:
    """Return the best state (online, away, offline); offline if `states` is empty."""
    return max(states, key=_RANK.__getitem__, default=PresenceState.OFFLINE)


@dataclasses.dataclass(frozen=True, slots=True)
class PresenceRecord:
    """The last published presence of a user.

    `version` increases with each change. `last_ms` is the last activity, in ms since 1970.
    """

    state: PresenceState
    last_ms: int
    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayPresence:
    """A user's presence on one gateway; the last activity was `ago_s` seconds ago."""

    user: UserId
    state: PresenceState
    ago_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class PresenceChange:
    """A user's presence over all gateways, and the gateways that are subscribed to it."""

    user: UserId
    is_changed: bool
    record: PresenceRecord
    subscribers: tuple[GatewayId, ...]


class SessionActivity:
    """The user's activity in one session.

    `is_fresh`: the session has been used since the last call to `update`. While it is True,
    `record_use` need not be called again.
    """

    __slots__ = ("is_foreground", "is_fresh", "used_at")

    def __init__(self, now: float, *, is_foreground: bool) -> None:
        self.is_foreground = is_foreground
        self.is_fresh = True
        self.used_at = now

    def record_use(self, now: float) -> None:
        self.is_fresh = True
        self.used_at = now

    def update(self, now: float) -> None:
        """If `is_fresh`, record `now` as the last use and clear `is_fresh`. Call periodically."""
        if self.is_fresh:
            self.used_at = now
            self.is_fresh = False

    def get_state_at(self, now: float, away_after_s: float) -> PresenceState:
        """Return the state of the user based on this session alone."""
        if self.is_foreground and (self.is_fresh or now - self.used_at < away_after_s):
            return PresenceState.ONLINE
        return PresenceState.AWAY
