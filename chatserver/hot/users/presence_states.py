"""Presence of users across all gateways, and the gateways subscribed to it.

Data:

- ``{pN}:seen:<user>`` (hash): ``g:<gateway>`` → online or away; ``last``, the time of the last
  activity (ms); ``v``, a version that increases with each change
- ``{pN}:watched:<user>`` (zset): gateways subscribed to the user's presence
- ``{pN}:gateways`` (zset): each gateway's expiry; presence published by an expired gateway is
  ignored

All times are from the Redis clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.domain.presence import (
    GatewayPresence,
    PresenceChange,
    PresenceRecord,
    PresenceState,
)
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.keys import Keys
from chatserver.hot.redis.scripts import load_script
from chatserver.hot.users.inbox import parse_gateways

LAST_SEEN_TTL_S = 604_800.0
BATCH_MAX = 500
# A gateway counts as dead if it has not extended its expiry for this share of `online_ttl_s`.
# Subscribers check at intervals of `online_ttl_s` / 3, and must see a dead gateway's users as
# offline within `online_ttl_s`. So the share must be below 2/3.
ALIVE_SHARE = 0.6


class PresenceStates:
    """Publishes, reads and subscribes to presence for one gateway."""

    def __init__(
        self, *, hot: HotClient, gateway: GatewayId, online_ttl_s: float, keep_s: float
    ) -> None:
        self._hot = hot
        self._keys: Keys = hot.keys
        self._gateway = gateway
        self._alive_ms = int(online_ttl_s * ALIVE_SHARE * 1000)
        self._subscription_ms = int(online_ttl_s * 1000)
        self._ttl_ms = int(keep_s * 1000)

    async def extend_expiry(self) -> bool:
        """Extend this gateway's expiry; return False if the gateway may already have expired.

        Raises:
            Unavailable: Redis does not respond.
        """
        return await self._set_expiry(self._alive_ms)

    async def leave(self, after_s: float) -> None:
        """Make this gateway expire in `after_s` seconds.

        Users who reconnect to another gateway before then stay online.
        """
        await self._set_expiry(int(after_s * 1000))

    async def _set_expiry(self, ttl_ms: int) -> bool:
        # Call all partitions concurrently: with a distant Redis, sequential calls could take longer
        # than `ttl_ms`.
        replies = await asyncio.gather(
            *(
                self._hot.run(
                    load_script("extend_gateway_expiry"),
                    {"gateways": self._keys.gateways(partition)},
                    {"gateway": self._gateway, "ttl_ms": ttl_ms},
                )
                for partition in range(self._keys.partitions)
            ),
            # If a cluster node is down, the partitions of other nodes are still refreshed.
            return_exceptions=True,
        )
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return all(reply == 1 for reply in replies)

    async def publish(self, states: Sequence[GatewayPresence]) -> list[PresenceChange]:
        """Publish the presence of users on this gateway; return their presence across all gateways.

        Guarantees:
            Idempotent: `is_changed` is True only if the presence across all gateways has changed.
            Cost: one script call per 500 users of a partition.

        Raises:
            Unavailable: Redis does not respond. The presence may have been published; a retry is
                safe.
        """
        by_user = {state.user: state for state in states}
        changes: list[PresenceChange] = []
        for partition, users in self._split_by_partition(list(by_user)):
            chosen_changes = [by_user[user] for user in users]
            reply = await self._hot.run(
                load_script("publish_presence"),
                {"gateways": self._keys.gateways(partition)},
                {"gateway": self._gateway, "alive_ms": self._alive_ms, "ttl_ms": self._ttl_ms},
                [
                    {
                        "seen": self._keys.seen(presence.user),
                        "watched": self._keys.watched(presence.user),
                        "state": presence.state,
                        "ago_ms": int(presence.ago_s * 1000),
                    }
                    for presence in chosen_changes
                ],
            )
            for i, change in enumerate(chosen_changes):
                changed, state, last, version, subscribers = reply[5 * i : 5 * i + 5]
                record = PresenceRecord(PresenceState(state.decode()), int(last), int(version))
                changes.append(
                    PresenceChange(change.user, bool(changed), record, parse_gateways(subscribers))
                )
        return changes

    async def subscribe(self, users: Sequence[UserId]) -> dict[UserId, PresenceRecord]:
        """Subscribe this gateway to users for `online_ttl_s`; return their presence.

        Raises:
            Unavailable: Redis does not respond.
        """
        return await self._run(users, self._subscription_ms)

    async def unsubscribe(self, users: Sequence[UserId]) -> None:
        await self._run(users, 0)

    async def find(self, users: Sequence[UserId]) -> dict[UserId, PresenceRecord]:
        """Return the users' presence. Do not call on a gateway: this ends its subscriptions to
        them.

        Raises:
            Unavailable: Redis does not respond.
        """
        return await self._run(users, 0)

    async def _run(self, users: Sequence[UserId], ttl_ms: int) -> dict[UserId, PresenceRecord]:
        records: dict[UserId, PresenceRecord] = {}
        for partition, chunk in self._split_by_partition(users):
            reply = await self._hot.run(
                load_script("subscribe_presence"),
                {"gateways": self._keys.gateways(partition)},
                {"gateway": self._gateway, "alive_ms": self._alive_ms, "ttl_ms": ttl_ms},
                [
                    {"seen": self._keys.seen(user), "watched": self._keys.watched(user)}
                    for user in chunk
                ],
            )
            for i, user in enumerate(chunk):
                state, last, version = reply[3 * i : 3 * i + 3]
                records[user] = PresenceRecord(
                    PresenceState(state.decode()), int(last), int(version)
                )
        return records

    def _split_by_partition(self, users: Sequence[UserId]) -> Iterator[tuple[int, list[UserId]]]:
        groups = self._keys.group_by_partition(users, lambda user: user)
        for partition, group in groups.items():
            for start in range(0, len(group), BATCH_MAX):
                yield partition, group[start : start + BATCH_MAX]

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId] | None:
        """Return the chat members among `users`; None if the chat is not loaded.

        Guarantees:
            Cost: one round trip.
        """
        gate, roles = await self._hot.snapshot(
            ("HGET", self._keys.chat(chat), "gate"), ("HMGET", self._keys.members(chat), *users)
        )
        if not self._hot.is_loaded(chat, gate):
            return None
        return {user for user, role in zip(users, roles, strict=True) if role is not None}
