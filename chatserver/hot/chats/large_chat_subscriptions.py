"""Large-chat subscriptions of gateways, and the periods in which a user's chats were large.

Data: ``{pN}:watchers:<chat>`` (zset, gateway → expiry by the Redis clock) has the gateways that a
commit notifies. Gateways renew their subscriptions; the subscriptions of a dead gateway expire.

``{pN}:large:<user>`` (hash, chat → periods, newest first, separated by ``;``) has the periods in
which the user's devices read the chat's log instead of the inbox. A period is
``<inbox seq>:<since>``, followed by ``:<until>`` once it has ended. ``<inbox seq>`` is the position
of the event that notified the user of the start or end (0 if it is older than the inbox);
``<since>`` and ``<until>`` are chat seqs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.inboxes import LargePeriod
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

SUBSCRIBE_BATCH_MAX = 500
_VALUES_PER_CHAT = 4  # number of values per chat in the reply of ``subscribe_large_chats.lua``


class LargeHead(NamedTuple):
    """State of a chat, and the chat seq at which one user joined, read atomically."""

    epoch: Epoch
    seq: Seq
    is_open: bool
    large: int  # chat version at which the chat became large; 0: the chat is not large
    joined: Seq  # chat seq at which the given user joined; 0: not a member


class LargeChatSubscriptions:
    """Large-chat subscriptions of one gateway."""

    def __init__(self, hot: HotClient, gateway: GatewayId, ttl_s: float) -> None:
        self._hot = hot
        self._gateway = gateway
        self._ttl_ms = int(ttl_s * 1000)

    async def subscribe(
        self, chats: Sequence[ChatId], user: UserId | None = None
    ) -> list[LargeHead]:
        """Subscribe this gateway to chats for another `ttl_s`; return the chats' states.

        Guarantees:
            Order: every entry above the returned seq is sent to this gateway. If `user` is a
                member at that seq, this includes the entry that ends their membership.
        """
        return await self._run(chats, self._ttl_ms, user or "")

    async def unsubscribe(self, chats: Sequence[ChatId]) -> None:
        await self._run(chats, 0, "")

    async def _run(self, chats: Sequence[ChatId], ttl_ms: int, user: str) -> list[LargeHead]:
        keys, heads = self._hot.keys, dict[ChatId, LargeHead]()
        script = load_script("subscribe_large_chats")
        groups = keys.group_by_partition(chats, lambda chat: chat)

        async def run(partition: int, group: list[ChatId]) -> None:
            epoch = self._hot.get_epoch(partition)
            for start in range(0, len(group), SUBSCRIBE_BATCH_MAX):
                chunk = group[start : start + SUBSCRIBE_BATCH_MAX]
                reply = await self._hot.run(
                    script,
                    args={"epoch": epoch, "gateway": self._gateway, "ttl_ms": ttl_ms},
                    items=[keys.of(chat, *script.item_keys) | {"user": user} for chat in chunk],
                )
                for i, chat in enumerate(chunk):
                    seq, is_open, large, joined = reply[
                        _VALUES_PER_CHAT * i : _VALUES_PER_CHAT * (i + 1)
                    ]
                    heads[chat] = LargeHead(epoch, Seq(seq), bool(is_open), large, Seq(joined))

        await asyncio.gather(*(run(*group) for group in groups.items()))
        return [heads[chat] for chat in chats]

    async def list_gateways(self, chat: ChatId) -> list[GatewayId]:
        """Return the gateways subscribed to a large chat; some may have died up to `ttl_s` ago."""
        names = await self._hot.call("ZRANGE", self._hot.keys.watchers(chat), 0, -1)
        return [GatewayId(name.decode()) for name in names]

    async def list_large(self, user: UserId) -> dict[ChatId, LargePeriod]:
        """Return the last period in which each of the user's chats was large; omit other chats."""
        reply = await self._hot.call("HGETALL", self._hot.keys.large(user))
        return {
            ChatId(name.decode()): _parse_periods(value)[0]
            for name, value in zip(reply[::2], reply[1::2], strict=True)
        }

    async def find_large(self, user: UserId, chat: ChatId) -> LargePeriod | None:
        """Return the last period in which the user's devices read the chat's log, or None."""
        value = await self._hot.call("HGET", self._hot.keys.large(user), chat)
        return None if value is None else _parse_periods(value)[0]

    async def find_since(self, user: UserId, chat: ChatId, notice: Seq) -> Seq | None:
        """Return the chat seq after which the user's devices read the chat's log, not the inbox.

        `notice`: the inbox seq of the event that ended this. Return None if the period is no longer
        stored, because the chat has become large or small too often since.
        """
        value = await self._hot.call("HGET", self._hot.keys.large(user), chat)
        periods = [] if value is None else _parse_periods(value)
        ended = (period for period in periods if period.until is not None)
        return next(
            (subscription.since for subscription in ended if subscription.notice == notice), None
        )


def _parse_periods(value: bytes) -> list[LargePeriod]:
    """Parse the periods in which one chat was large; see the module docstring."""
    periods = []
    for period in value.split(b";"):
        notice, since, *until = (Seq(int(number)) for number in period.split(b":"))
        periods.append(LargePeriod(notice, since, until[0] if until else None))
    return periods
