"""Presence subscriptions of a device, renewed on each connection. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from chatserver.client.request_queue import Fields
from chatserver.errors import Overloaded
from chatserver.protocol.frames import WATCH_MAX


@attrs.define(eq=False, repr=False)
class PresenceSubscriptions:
    """The users whose presence the device receives, at most `users_max`."""

    _notify: Callable[[Fields], None]
    _users_max: int
    _users: dict[str, None] = attrs.field(factory=dict, init=False)

    def add(self, users: list[str]) -> None:
        """Subscribe to users.

        Raises:
            Overloaded: too many subscriptions.
        """
        if len(self._users.keys() | set(users)) > self._users_max:
            raise Overloaded(f"at most {self._users_max} presence subscriptions are allowed")
        self._users.update(dict.fromkeys(users))
        self._send("watch", users)

    def remove(self, users: list[str]) -> None:
        for user in users:
            self._users.pop(user, None)
        self._send("unwatch", users)

    def renew(self) -> None:
        """Subscribe again on a new connection."""
        self._send("watch", list(self._users))

    def _send(self, kind: str, users: list[str]) -> None:
        for start in range(0, len(users), WATCH_MAX):
            self._notify({"type": kind, "users": users[start : start + WATCH_MAX]})
