"""Chats that are idle leave the hot tier; whoever uses one next loads it again.

Data: ``{pN}:idle`` (sorted set), chat → second since when nothing is known to have happened in it.
A chat is listed when it is opened and whenever something of it was persisted, so nothing is written
for it while people chat. `redis.chat_idle_s` later it is looked at, and leaves if it may: its head,
members, log and overlay. References of its messages expire by themselves, and what users have of it
in their boxes stays. Its inbox entries stay, too: a device that was away for so long gets the
messages from the warm tier (`chatserver.service.sync`).
"""

from __future__ import annotations

from collections.abc import Iterable

from chatserver.domain.ids import ChatId
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script

CHATS_MAX = 100  # in a step


class Eviction:
    """Lists chats, and lets those go that are idle."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def note_active(self, partition: int, chats: Iterable[ChatId], now_s: float) -> None:
        """Note that something happened in chats of a partition."""
        names = [value for chat in chats for value in (int(now_s), chat)]
        if names:
            await self._hot.write("ZADD", self._hot.keys.idle(partition), *names)

    async def evict_idle(self, partition: int, now_s: float) -> int:
        """Look at the chats of a partition that are idle for longest; return how many left.

        Guarantees:
            Atomic for each chat: one that is in use, or not wholly persisted, stays as it is.
            Cost: two calls, for at most `CHATS_MAX` chats; one if none is idle.
        """
        keys, idle_s = self._hot.keys, self._hot.settings.chat_idle_s
        names: list[bytes] = await self._hot.call(
            "ZRANGEBYSCORE", keys.idle(partition), "-inf", int(now_s) - idle_s,
            "LIMIT", 0, CHATS_MAX,
        )  # fmt: skip
        if not names:
            return 0
        chats = [ChatId(name.decode()) for name in names]
        gone: int = await self._hot.run(
            load_script("evict"),
            {"idle": keys.idle(partition), "undelivered": keys.undelivered(partition)},
            {"idle_s": idle_s},
            [
                {
                    "chat": keys.chat(chat),
                    "members": keys.members(chat),
                    "log": keys.log(chat),
                    "over": keys.over(chat),
                    "revs": keys.revs(chat),
                    "asides": keys.asides(chat),
                    "expiring": keys.expiring(chat),
                    "turnover": keys.turnover(chat),
                    "chat_id": chat,
                }
                for chat in chats
            ],
        )
        return gone
