"""How present users are, over all gateways, and which gateways want to know.

Data: ``{pN}:seen:<user>`` (hash): ``g:<gateway>`` → online or away, ``last`` (ms) when the user
was there, ``v`` a version that rises with each change. ``{pN}:watched:<user>`` (zset): gateways
with somebody who watches the user. ``{pN}:gateways`` (zset): until when a gateway lives; what a
dead one said of its users counts no more. All times are Redis's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.domain.presence import Appearance, News, Sight, State
from chatserver.hot.client import HotClient
from chatserver.hot.inbox import parse_gateways
from chatserver.hot.keys import Keys
from chatserver.hot.scripts import load_script

BATCH_MAX = 500
# A gateway refreshes each third of the time after which its users are to be offline; the watchers
# look as often. So it must count as dead after less than two thirds.
ALIVE_SHARE = 0.6


class Seen:
    """What one gateway says and learns of users' presence."""

    def __init__(
        self, hot: HotClient, gateway: GatewayId, online_ttl_s: float, keep_s: float
    ) -> None:
        self._hot = hot
        self._keys: Keys = hot.keys
        self._gateway = gateway
        self._alive_ms = int(online_ttl_s * ALIVE_SHARE * 1000)
        self._watch_ms = int(online_ttl_s * 1000)
        self._keep_ms = int(keep_s * 1000)

    async def keep_alive(self) -> bool:
        """Live on; False if others may have taken this gateway for dead meanwhile.

        Raises:
            Unavailable: Redis does not answer.
        """
        return await self._live_for(self._alive_ms)

    async def leave(self, after_s: float) -> None:
        """Die in `after_s`: by then the users have come back elsewhere, or are gone."""
        await self._live_for(int(after_s * 1000))

    async def _live_for(self, ttl_ms: int) -> bool:
        # All at once: one after another takes longer than a life where Redis is far away.
        answers = await asyncio.gather(
            *(
                self._hot.run(
                    load_script("alive"),
                    {"gateways": self._keys.gateways(partition)},
                    {"gateway": self._gateway, "ttl_ms": ttl_ms},
                )
                for partition in range(self._keys.partitions)
            ),
            # A node of a cluster may be down: in the partitions of the others we live on.
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return all(answer == 1 for answer in answers)

    async def announce(self, appearances: Sequence[Appearance]) -> list[News]:
        """Say how present users are here; return how present that makes them.

        Guarantees:
            Idempotent: only what changes a user's state over all gateways is a change.
            Cost: one script call per partition and 500 users.

        Raises:
            Unavailable: Redis does not answer; said or not, saying it again does no harm.
        """
        by_user = {appearance.user: appearance for appearance in appearances}
        news: list[News] = []
        for partition, users in self._chunks(list(by_user)):
            chosen = [by_user[user] for user in users]
            reply = await self._hot.run(
                load_script("appear"),
                {"gateways": self._keys.gateways(partition)},
                {"gateway": self._gateway, "alive_ms": self._alive_ms, "ttl_ms": self._keep_ms},
                [
                    {
                        "seen": self._keys.seen(one.user),
                        "watched": self._keys.watched(one.user),
                        "state": one.state,
                        "ago_ms": int(one.ago_s * 1000),
                    }
                    for one in chosen
                ],
            )
            for i, one in enumerate(chosen):
                changed, state, last, version, watchers = reply[5 * i : 5 * i + 5]
                sight = Sight(State(state.decode()), int(last), int(version))
                news.append(News(one.user, bool(changed), sight, parse_gateways(watchers)))
        return news

    async def watch(self, users: Sequence[UserId]) -> dict[UserId, Sight]:
        """Watch users for another `online_ttl_s`, and see how present they are.

        Raises:
            Unavailable: Redis does not answer.
        """
        return await self._watch(users, self._watch_ms)

    async def unwatch(self, users: Sequence[UserId]) -> None:
        """Watch users no more."""
        await self._watch(users, 0)

    async def look(self, users: Sequence[UserId]) -> dict[UserId, Sight]:
        """See how present users are, without watching them.

        Raises:
            Unavailable: Redis does not answer.
        """
        return await self._watch(users, 0)

    async def _watch(self, users: Sequence[UserId], ttl_ms: int) -> dict[UserId, Sight]:
        sights: dict[UserId, Sight] = {}
        for partition, chunk in self._chunks(users):
            reply = await self._hot.run(
                load_script("watch"),
                {"gateways": self._keys.gateways(partition)},
                {"gateway": self._gateway, "alive_ms": self._alive_ms, "ttl_ms": ttl_ms},
                [
                    {"seen": self._keys.seen(user), "watched": self._keys.watched(user)}
                    for user in chunk
                ],
            )
            for i, user in enumerate(chunk):
                state, last, version = reply[3 * i : 3 * i + 3]
                sights[user] = Sight(State(state.decode()), int(last), int(version))
        return sights

    def _chunks(self, users: Sequence[UserId]) -> Iterator[tuple[int, list[UserId]]]:
        groups: dict[int, list[UserId]] = {}
        for user in users:
            groups.setdefault(self._keys.partition_of(user), []).append(user)
        for partition, group in groups.items():
            for start in range(0, len(group), BATCH_MAX):
                yield partition, group[start : start + BATCH_MAX]

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId] | None:
        """Return who of the users is a member of the chat now; None: the chat is not open.

        Guarantees:
            Cost: one round trip, whatever the size of the chat.
        """
        gate, roles = await self._hot.snapshot(
            ("HGET", self._keys.chat(chat), "gate"), ("HMGET", self._keys.members(chat), *users)
        )
        epoch = self._hot.epoch_of(self._keys.partition_of(chat))
        if gate is None or not gate.startswith(f"{epoch}:".encode()):
            return None
        return {user for user, role in zip(users, roles, strict=True) if role is not None}
