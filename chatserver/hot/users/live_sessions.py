"""Read-only list of a user's sessions on all gateways.

`chatserver.hot.users.user_sessions` writes the data.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient


class LiveSession(NamedTuple):
    """A session of a user; `device` is the device id that the client chose."""

    session: str
    gateway: str
    device: str
    started_ms: int


class LiveSessions:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def list_sessions(self, user: UserId) -> list[LiveSession]:
        """Return the user's sessions, oldest first, except sessions on dead gateways.

        Raises:
            Unavailable: Redis does not respond.
        """
        keys = self._hot.keys
        gateways = keys.gateways(keys.get_partition(user))
        seen_at, until, time = await self._hot.snapshot(
            ("HGETALL", keys.seen(user)), ("ZRANGE", gateways, 0, -1, "WITHSCORES"), ("TIME",)
        )
        now_ms = int(time[0]) * 1000
        alive = {
            name.decode()
            for name, score in zip(until[::2], until[1::2], strict=True)
            if float(score) > now_ms
        }
        sessions = []
        for name, value in zip(seen_at[::2], seen_at[1::2], strict=True):
            if name.startswith(b"s:"):
                gateway, device, started = value.decode().split(" ")
                if gateway in alive:
                    session = name[2:].decode()
                    sessions.append(LiveSession(session, gateway, device, int(started)))
        return sorted(sessions, key=lambda live_session: live_session.started_ms)
