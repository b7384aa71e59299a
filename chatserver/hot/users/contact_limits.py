"""Contact limit: the number of direct chats with strangers that a user may open per day.

Strangers are users whom the user may not add to a group without an invitation.

Data: ``{pN}:limit:contacts:<user>`` (hash), a token bucket that refills within a day. It expires
when it would be full.
"""

from __future__ import annotations

from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script

DAY_S = 86_400


class ContactLimits:
    """Limits each user to `per_day` new contacts."""

    def __init__(self, hot: HotClient, per_day: int) -> None:
        self._hot = hot
        self._per_day = per_day

    async def consume(self, user: UserId) -> int:
        """Count one new contact; return 0.

        If the limit is reached, return the ms until the next one is allowed.

        Raises:
            Unavailable: Redis does not respond.
        """
        item: dict[str, Value] = {
            "limit": self._hot.keys.limit("contacts", user),
            "burst": self._per_day,
            "rate": repr(self._per_day / DAY_S),
            "wanted": 1,
            "owed": 0,
        }
        is_granted, wait_ms = await self._hot.run(load_script("consume_rate_limits"), items=[item])
        return 0 if is_granted else int(wait_ms)
