"""Redis queues of the social graph: count changes, and the wake-up of timeline workers.

Data, per partition: ``{pN}:counts`` (stream). The name of an entry's first field is the kind of
count: ``p`` likes of a post, ``r`` followers of a user, ``g`` users followed by a user. The field's
value is the post or user. The second field, ``d``, is 1 or -1. All changes to the counts of a post
or user are in the same stream.

`worker/counters.py` trims entries only after they have been counted, so a crash loses none. When
`queue_max` entries are queued, likes and follows are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, Literal, NamedTuple

from chatserver.domain.ids import ChatId
from chatserver.errors import Overloaded
from chatserver.features.social.keys import SocialKeys
from chatserver.features.social.model import Change
from chatserver.hot.bus.stream_waiter import FIRST, StreamWaiter
from chatserver.hot.redis.client import BLOCK_MS, HotClient

RETRY_MS = 1000
PAGE = 1000


Count = Literal["likes", "followers", "following"]
_FIELDS: Final[dict[Count, str]] = {"likes": "p", "followers": "r", "following": "g"}
_COUNTS: Final = {field.encode(): count for count, field in _FIELDS.items()}


class CountEntry(NamedTuple):
    """A queued count change. `position` is the entry id, zero-padded so that it sorts as text."""

    position: str
    kind: Count
    subject: str  # a post, or a user
    change: int


QUEUE_MAX = 100_000  # maximum queued count changes per partition; further ones are refused


class CountQueue:
    """Queue of changes to like and follow counts, for all partitions."""

    def __init__(self, hot: HotClient, queue_max: int = QUEUE_MAX) -> None:
        self._hot = hot
        self._queue_max = queue_max

    async def check_capacity(self, *subjects: str) -> None:
        """Check that the queues of these posts or users are not full.

        Raises:
            Overloaded: a queue is full.
        """
        keys = {self._get_key(subject) for subject in subjects}
        lengths = await asyncio.gather(*(self._hot.call("XLEN", key) for key in keys))
        if max(map(int, lengths)) >= self._queue_max:
            raise Overloaded(
                "too many likes and follows are waiting to be counted; try again",
                retry_after_ms=RETRY_MS,
            )

    async def add(self, count: Count, subject: str, change: Change) -> None:
        """Append a change. Concurrent calls may exceed `queue_max` slightly."""
        key = self._get_key(subject)
        await self._hot.call("XADD", key, "*", _FIELDS[count], subject, "d", change)

    async def has_uncounted(self, subject: str) -> bool:
        """Return whether a post or user has queued changes. May read the whole queue."""
        async for _ in self._iter_entries(subject):
            return True
        return False

    async def remove(self, subject: str) -> None:
        """Remove queued changes to an erased user's counts. Reads the whole queue. Idempotent."""
        async for names in self._iter_entries(subject):
            await self._hot.call("XDEL", self._get_key(subject), *names)

    async def _iter_entries(self, subject: str) -> AsyncIterator[list[bytes]]:
        """Yield the ids of a post's or user's entries, page by page."""
        start, expected = "-", subject.encode()
        while True:
            reply = await self._hot.call(
                "XRANGE", self._get_key(subject), start, "+", "COUNT", PAGE
            )
            if names := [name for name, fields in reply if fields[1] == expected]:
                yield names
            if len(reply) < PAGE:
                return
            start = f"({reply[-1][0].decode()}"

    def _get_key(self, subject: str) -> str:
        keys = SocialKeys(self._hot.keys.partitions)
        return keys.counts(keys.get_partition(ChatId(subject)))


class CountBatches:
    """Reads and trims the queued count changes of one partition."""

    def __init__(self, hot: HotClient, partition: int) -> None:
        self._hot = hot
        self._key = SocialKeys(hot.keys.partitions).counts(partition)
        self._entries = StreamWaiter(hot, self._key)

    async def wait(self, wait_ms: int) -> bool:
        """Wait up to `wait_ms` for a count change; return False if there is none.

        Raises:
            Unavailable: Redis is unavailable.
        """
        return await self._entries.wait_after(FIRST, wait_ms) is not None

    async def close(self) -> None:
        """Close the connection that `wait` uses."""
        await self._entries.close()

    async def list_waiting(self, limit: int) -> list[CountEntry]:
        """Return the `limit` oldest entries."""
        reply = await self._hot.call("XRANGE", self._key, "-", "+", "COUNT", limit)
        waiting = []
        for name, fields in reply:
            ms, _, number = name.decode().partition("-")
            position = f"{int(ms):016d}-{int(number):010d}"
            count, subject = _COUNTS[bytes(fields[0])], fields[1].decode()
            waiting.append(CountEntry(position, count, subject, int(fields[3])))
        return waiting

    async def trim(self, upto: CountEntry) -> None:
        """Trim all entries up to and including `upto`. Idempotent."""
        ms, _, number = upto.position.partition("-")
        await self._hot.call("XTRIM", self._key, "MINID", f"{int(ms)}-{int(number) + 1}")


def get_age_s(oldest: CountEntry, now_s: float) -> float:
    """Return the age of an entry in seconds."""
    return max(0.0, now_s - int(oldest.position.partition("-")[0]) / 1000)


class PostWakeUp:
    """Wake-ups for timeline workers, which also poll in case a wake-up is lost.

    Data: ``{social}:wake`` (stream): its only entry is the newest wake-up.
    """

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._key = SocialKeys(hot.keys.partitions).wake()
        self._next = asyncio.Event()
        self.version = 0  # number of wake-ups received by `listen`

    async def notify(self) -> None:
        """Wake up the workers of all processes."""
        await self._hot.call("XADD", self._key, "MAXLEN", 1, "*", "w", 1)

    async def listen(self) -> None:
        """Receive wake-ups until cancelled.

        Raises:
            Unavailable: Redis is unavailable.
        """
        entries, position = StreamWaiter(self._hot, self._key), FIRST
        try:
            while True:
                if (newest := await entries.wait_after(position, BLOCK_MS)) is not None:
                    position = newest
                    self.version += 1
                    self._next.set()
                    self._next = asyncio.Event()
        finally:
            await entries.close()

    async def wait(self, version: int, wait_s: float) -> None:
        """Wait up to `wait_s` for a wake-up after `version`."""
        if self.version == version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._next.wait()
