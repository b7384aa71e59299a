"""Likes on their way into counts, and the bell that says that there are posts for timelines.

Data, per partition: ``{pN}:likes`` (stream, entry ``p`` the post, ``d`` 1 or -1), oldest first. It
is read and emptied from its beginning by `workers.counters`: what it counted it trims, so entries
are never lost in between. Bound: `queue_max` entries; beyond it likes are refused until there is
room.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.domain.ids import ChatId
from chatserver.domain.social import Liking, PostId
from chatserver.errors import Overloaded
from chatserver.hot.client import HotClient

RETRY_MS = 1000
PAGE = 1000


class LikeEntry(NamedTuple):
    """A like or the end of one. `place` sorts as text in the order of the queue."""

    place: str
    post: PostId
    change: int


class LikeQueue:
    """Where likes begin their way; all partitions."""

    def __init__(self, hot: HotClient, queue_max: int) -> None:
        self._hot = hot
        self._queue_max = queue_max

    async def check_room(self, post: PostId) -> None:
        """See that a like would be taken.

        Raises:
            Overloaded: too many wait to be counted.
        """
        if int(await self._hot.call("XLEN", self._key_of(post))) >= self._queue_max:
            raise Overloaded("likes: too many wait to be counted", retry_after_ms=RETRY_MS)

    async def add(self, post: PostId, change: Liking) -> None:
        """Have a like counted. A little more than `queue_max` may come in at once."""
        await self._hot.call("XADD", self._key_of(post), "*", "p", post, "d", change)

    async def is_waiting(self, post: PostId) -> bool:
        """Tell whether a like of a post waits to be counted. Reads the queue of a partition."""
        start, wanted = "-", post.encode()
        while True:
            reply = await self._hot.call("XRANGE", self._key_of(post), start, "+", "COUNT", PAGE)
            if any(fields[1] == wanted for _, fields in reply):
                return True
            if len(reply) < PAGE:
                return False
            start = f"({reply[-1][0].decode()}"

    def _key_of(self, post: PostId) -> str:
        return self._hot.keys.likes(self._hot.keys.partition_of(ChatId(post)))


class LikeBatches:
    """What waits in one partition, for the one who counts it."""

    def __init__(self, hot: HotClient, partition: int) -> None:
        self._hot = hot
        self._key = hot.keys.likes(partition)

    async def list_waiting(self, limit: int) -> list[LikeEntry]:
        """Return the entries that wait longest."""
        reply = await self._hot.call("XRANGE", self._key, "-", "+", "COUNT", limit)
        found = []
        for name, fields in reply:
            ms, _, number = name.decode().partition("-")
            place = f"{int(ms):016d}-{int(number):010d}"
            found.append(LikeEntry(place, PostId(fields[1].decode()), int(fields[3])))
        return found

    async def forget(self, upto: LikeEntry) -> None:
        """Take all entries up to one of them off the queue. Idempotent."""
        ms, _, number = upto.place.partition("-")
        await self._hot.call("XTRIM", self._key, "MINID", f"{int(ms)}-{int(number) + 1}")


def waited_s(oldest: LikeEntry, now_s: float) -> float:
    """Return how long an entry has been waiting."""
    return max(0.0, now_s - int(oldest.place.partition("-")[0]) / 1000)


class PostBell:
    """Tells workers that there is a job for timelines; who misses it looks by himself.

    Data: ``{social}:posts`` (string): rises with each ring.
    """

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def ring(self) -> None:
        """Say that there is one more."""
        await self._hot.call("INCR", self._hot.keys.social_posts())

    async def read(self) -> int:
        """Return a number that differs after a ring."""
        return int(await self._hot.call("GET", self._hot.keys.social_posts()) or 0)
