"""Daily limits, counted in Redis: new contacts of a user, and bytes of uploaded files.

Data: ``{pN}:limit:<kind>:<subject>`` (hash), a token bucket that refills within a day. It expires
when it would be full. The subject is a user, or a network whose new accounts share a limit, as for
memory (`chatserver.hot.users.token_buckets`).
"""

from __future__ import annotations

import math

from chatserver.domain.client_addresses import is_wide_network
from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.hot.users.token_buckets import NETWORK_FACTOR, WIDE_FACTOR

DAY_S = 86_400


class DailyLimit:
    """Limits each user to `per_day` units of one kind."""

    def __init__(self, hot: HotClient, kind: str, per_day: int) -> None:
        self._hot = hot
        self._kind = kind
        self._per_day = per_day

    async def consume(self, user: UserId, count: int = 1, networks: tuple[str, ...] = ()) -> int:
        """Count `count` units; return 0. If the limit is reached, count none.

        In that case, return the ms until `count` units are allowed. `networks` are those of a new
        account: its units also count against the limit of each of them.

        Raises:
            Unavailable: Redis does not respond.
        """
        taken: list[tuple[str, int]] = []
        for subject, per_day in self._list_limits(user, networks):
            granted, wait_ms = await self._take(subject, per_day, count)
            if granted < count:
                for earlier in [*taken, (subject, per_day)]:
                    await self._take(*earlier, -(granted if earlier[0] == subject else count))
                missing_s = (count - granted) * DAY_S / per_day
                return max(1, wait_ms, math.ceil(missing_s * 1000))
            taken.append((subject, per_day))
        return 0

    async def give_back(self, user: UserId, count: int, networks: tuple[str, ...] = ()) -> None:
        """Undo a `consume`, because the counted request had no effect."""
        for subject, per_day in self._list_limits(user, networks):
            await self._take(subject, per_day, -count)

    async def get_left(self, user: UserId) -> int:
        """Return how many units the user has left. Raises Unavailable."""
        key = self._hot.keys.limit(self._kind, user)
        (tokens, at), (seconds, micros) = await self._hot.snapshot(
            ("HMGET", key, "tokens", "at"), ("TIME",)
        )
        if tokens is None:
            return self._per_day
        passed_s = int(seconds) + int(micros) / 1e6 - int(at) / 1000
        return min(self._per_day, int(float(tokens) + max(0, passed_s) * self._per_day / DAY_S))

    def _list_limits(self, user: UserId, networks: tuple[str, ...]) -> list[tuple[str, int]]:
        per_network = self._per_day * NETWORK_FACTOR
        return [
            *(
                (f"network/{net}", per_network * (WIDE_FACTOR if is_wide_network(net) else 1))
                for net in networks
            ),
            (user, self._per_day),
        ]

    async def _take(self, subject: str, per_day: int, count: int) -> tuple[int, int]:
        item: dict[str, Value] = {
            "limit": self._hot.keys.limit(self._kind, subject),
            "burst": per_day,
            "rate": repr(per_day / DAY_S),
            "requested": count,
            "owed": 0,
        }
        granted, wait_ms = await self._hot.run(load_script("consume_rate_limits"), items=[item])
        return int(granted), int(wait_ms)
