"""Redis queues of the social graph: uncounted likes, and the wake-up of timeline workers.

Data, per partition: ``{pN}:likes`` (stream; fields ``p``: the post, ``d``: 1 or -1).
`worker/like_counter.py` reads the stream from its start and trims entries after they are counted,
so none is lost in a crash. Bound: `queue_max` entries; when the queue is full, likes are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

from chatserver.domain.ids import ChatId
from chatserver.errors import Overloaded
from chatserver.features.social.model import Liking, PostId
from chatserver.hot.bus.stream_waiter import FIRST, StreamWaiter
from chatserver.hot.redis.client import BLOCK_MS, HotClient

RETRY_MS = 1000
PAGE = 1000


class LikeEntry(NamedTuple):
    """A like or unlike. `place` is its queue position, a text that sorts in queue order."""

    place: str
    post: PostId
    change: int


QUEUE_MAX = 100_000  # likes waiting per partition; more are refused


class LikeQueue:
    """Queue of uncounted likes, for all partitions."""

    def __init__(self, hot: HotClient, queue_max: int = QUEUE_MAX) -> None:
        self._hot = hot
        self._queue_max = queue_max

    async def check_room(self, post: PostId) -> None:
        """Check that the queue accepts a like.

        Raises:
            Overloaded: the queue is full.
        """
        if int(await self._hot.call("XLEN", self._key_of(post))) >= self._queue_max:
            raise Overloaded(
                "too many likes are waiting to be counted; try again", retry_after_ms=RETRY_MS
            )

    async def add(self, post: PostId, change: Liking) -> None:
        """Append a like. Concurrent calls may exceed `queue_max` slightly."""
        await self._hot.call("XADD", self._key_of(post), "*", "p", post, "d", change)

    async def is_waiting(self, post: PostId) -> bool:
        """Return whether a post has uncounted likes. May read the whole queue of a partition."""
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
    """Uncounted likes of one partition, read by its worker."""

    def __init__(self, hot: HotClient, partition: int) -> None:
        self._hot = hot
        self._key = hot.keys.likes(partition)
        self._entries = StreamWaiter(hot, self._key)

    async def wait(self, wait_ms: int) -> bool:
        """Wait until a like is uncounted; False if there is none in `wait_ms`.

        Raises:
            Unavailable: Redis is unavailable.
        """
        return await self._entries.wait_after(FIRST, wait_ms) is not None

    async def close(self) -> None:
        """Close the connection of `wait`."""
        await self._entries.close()

    async def list_waiting(self, limit: int) -> list[LikeEntry]:
        """Return the oldest entries."""
        reply = await self._hot.call("XRANGE", self._key, "-", "+", "COUNT", limit)
        found = []
        for name, fields in reply:
            ms, _, number = name.decode().partition("-")
            place = f"{int(ms):016d}-{int(number):010d}"
            found.append(LikeEntry(place, PostId(fields[1].decode()), int(fields[3])))
        return found

    async def forget(self, upto: LikeEntry) -> None:
        """Trim all entries up to and including `upto`. Idempotent."""
        ms, _, number = upto.place.partition("-")
        await self._hot.call("XTRIM", self._key, "MINID", f"{int(ms)}-{int(number) + 1}")


def get_age_s(oldest: LikeEntry, now_s: float) -> float:
    """Return the age of an entry."""
    return max(0.0, now_s - int(oldest.place.partition("-")[0]) / 1000)


class PostWakeUp:
    """Wake-ups for timeline workers; polling covers missed ones.

    Data: ``{social}:wake`` (stream): its only entry is the newest wake-up.
    """

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._key = hot.keys.social_wake()
        self._next = asyncio.Event()
        self.version = 0  # changes with each wake-up, while `listen` runs

    async def notify(self) -> None:
        """Wake the workers of all processes up."""
        await self._hot.call("XADD", self._key, "MAXLEN", 1, "*", "w", 1)

    async def listen(self) -> None:
        """Receive wake-ups until cancelled.

        Raises:
            Unavailable: Redis is unavailable.
        """
        entries, at = StreamWaiter(self._hot, self._key), FIRST
        try:
            while True:
                if (newest := await entries.wait_after(at, BLOCK_MS)) is not None:
                    at = newest
                    self.version += 1
                    self._next.set()
                    self._next = asyncio.Event()
        finally:
            await entries.close()

    async def wait(self, version: int, wait_s: float) -> None:
        """Wait for a wake-up after `version`, for at most `wait_s`."""
        if self.version == version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._next.wait()
