"""Group quota: the number of groups that a user may still join.

Data: ``{pN}:room:<user>`` (string), the remaining number. It decreases with each join, but does not
increase when the user leaves a group. If it is 0 or has expired, the user's groups are counted
again before a join is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

ROOM_TTL_S = 86_400


class GroupQuotas:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def consume(self, users: Collection[UserId]) -> set[UserId]:
        """Decrease each user's quota by one; return the users whose quota is 0 or unknown.

        Guarantees:
            Cost: one Redis call per partition, pipelined.

        Raises:
            Unavailable: Redis does not respond; quotas may have been decreased.
        """
        groups = self._by_partition(users)
        replies = await asyncio.gather(
            *(
                self._hot.run(
                    load_script("consume_group_quota"),
                    items=[{"room": self._hot.keys.room(user)} for user in group],
                )
                for group in groups
            )
        )
        return {
            user
            for group, reply in zip(groups, replies, strict=True)
            for user, is_granted in zip(group, reply, strict=True)
            if not is_granted
        }

    async def put(self, rooms: Mapping[UserId, int]) -> None:
        """Store how many groups each user may still join.

        Raises:
            Unavailable: Redis does not respond.
        """
        await asyncio.gather(
            *(
                self._hot.transaction(
                    *(
                        ("SET", self._hot.keys.room(user), rooms[user], "EX", ROOM_TTL_S)
                        for user in group
                    )
                )
                for group in self._by_partition(rooms)
            )
        )

    def _by_partition(self, users: Collection[UserId]) -> list[list[UserId]]:
        return list(self._hot.keys.group_by_partition(users, lambda user: user).values())
