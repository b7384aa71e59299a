"""User gateways: the gateways on which each online user has a session.

Data: ``{pN}:online:<user>`` (zset), gateway → expiry by the Redis clock, with a copy in
``{pN}:where``. A gateway extends its expiry well before that time. Events sent to a dead gateway
are lost; its devices reconnect and resume from their inboxes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chatserver.domain.ids import GatewayId, Seq, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

REFRESH_BATCH_MAX = 500


class UserGateways:
    def __init__(self, hot: HotClient, gateway: GatewayId, ttl_s: float) -> None:
        self._hot = hot
        self._gateway = gateway
        self._ttl_s = ttl_s

    async def prune(self, users: Sequence[UserId]) -> None:
        """Remove dead gateways, whose expiry has passed, from the users' `online` keys."""
        await self._run(users, 0, GatewayId("-"))

    async def set_online(self, users: Sequence[UserId]) -> list[InboxState]:
        """Mark users as online on this gateway for another `ttl_s`; return their inbox states."""
        return await self._run(users, int(self._ttl_s * 1000), self._gateway)

    async def set_offline(self, users: Sequence[UserId]) -> None:
        await self._run(users, 0, self._gateway)

    async def _run(
        self, users: Sequence[UserId], ttl_ms: int, gateway: GatewayId
    ) -> list[InboxState]:
        keys, states = self._hot.keys, dict[UserId, InboxState]()
        script = load_script("set_online")
        groups = keys.group_by_partition(users, lambda user: user)

        async def run(partition: int, group: list[UserId]) -> None:
            epoch = self._hot.get_epoch(partition)
            for start in range(0, len(group), REFRESH_BATCH_MAX):
                chunk = group[start : start + REFRESH_BATCH_MAX]
                reply = await self._hot.run(
                    script,
                    keys.of(partition, *script.keys),
                    {"epoch": epoch, "gateway": gateway, "ttl_ms": ttl_ms},
                    [keys.of(user, *script.item_keys) | {"user": user} for user in chunk],
                )
                for i, user in enumerate(chunk):
                    seq, first, is_known = reply[3 * i : 3 * i + 3]
                    # Read the epoch after the call: it may have changed during the call, and
                    # devices must get the new one.
                    whole = self._hot.whole_epoch
                    states[user] = InboxState(whole, Seq(seq), Seq(first), bool(is_known))

        await asyncio.gather(*(run(*group) for group in groups.items()))
        return [states[user] for user in users]
