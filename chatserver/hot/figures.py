"""What processes say of themselves, for the admin page: one stream, read by whoever draws it.

Data: ``{figures}:log`` (stream): ``p`` the process, ``s`` its snapshot (msgpack of
`chatserver.domain.figures.Snapshot`), each process every other second. Expires `KEPT_S` after the
last one. Bound: entries of the last `KEPT_S` seconds by Redis's own clock, and about `ENTRIES_MAX`:
with more than 66 processes the past is shorter.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final, NamedTuple

import msgspec

from chatserver.domain.clock import Clock
from chatserver.domain.figures import KEPT_S, PARTITIONS_MAX, Backlog, Snapshot, Waiting
from chatserver.hot.backlog import Backlog as BacklogOf
from chatserver.hot.client import HotClient

ENTRIES_MAX: Final = 20_000
LOOKED_MAX: Final = 64  # partitions at once
FIRST: Final = "0-0"


class Said(NamedTuple):
    """A snapshot, whose it is, and when Redis took it."""

    at_ms: int
    process: str
    snapshot: Snapshot


class Page(NamedTuple):
    """Some of what was said, oldest first. `entry`: where to go on; `now_ms`: Redis's time."""

    said: list[Said]
    entry: str
    now_ms: int
    has_more: bool


class FigureLog:
    """Writes and reads them."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Snapshot).decode
        self._newest_ms = 0  # by Redis's clock, as far as this process knows

    async def append(self, process: str, snapshot: Snapshot) -> None:
        """Say something.

        Guarantees:
            Cost: one call of three commands, some 1 KB. A repeat says it twice, which shows for one
            moment of a chart.

        Raises:
            Unavailable: Redis does not answer; it may have been said.
        """
        key, kept_ms = self._hot.keys.figures(), int(KEPT_S * 1000)
        oldest = max(0, self._newest_ms - kept_ms)
        entry, *_ = await self._hot.transaction(
            ("XADD", key, "MINID", "~", oldest, "*", "p", process, "s", self._encode(snapshot)),
            ("XTRIM", key, "MAXLEN", "~", ENTRIES_MAX),
            ("PEXPIRE", key, kept_ms),
        )
        self._newest_ms = int(entry.partition(b"-")[0])

    async def list_after(self, entry: str, limit: int) -> Page:
        """Return what was said after an entry.

        What another release said, and this one cannot read, is passed over.

        Raises:
            Unavailable: Redis does not answer.
        """
        key = self._hot.keys.figures()
        reply, (seconds, micros) = await self._hot.snapshot(
            ("XRANGE", key, f"({entry}", "+", "COUNT", limit), ("TIME",)
        )
        found = []
        for name, (_, process, _, body) in reply:
            try:
                snapshot = self._decode(body)
            except msgspec.MsgspecError:
                continue
            found.append(Said(int(name.partition(b"-")[0]), process.decode(), snapshot))
        newest = reply[-1][0].decode() if reply else entry
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return Page(found, newest, now_ms, len(reply) == limit)


class BacklogLook:
    """Looks how long the backlogs are, a part of the partitions each time, and remembers."""

    def __init__(self, hot: HotClient, clock: Clock) -> None:
        self._hot = hot
        self._clock = clock
        self._partitions = itertools.cycle(range(hot.keys.partitions))
        self._known: dict[int, Waiting] = {}

    async def look(self) -> Backlog:
        """Return what is known of all partitions.

        Guarantees:
            Cost: a small call for each of at most `LOOKED_MAX` partitions, and one that returns an
            entry of the backlog for each that is not empty.

        Raises:
            Unavailable: Redis does not answer.
        """
        count = min(self._hot.keys.partitions, LOOKED_MAX)
        some = list(itertools.islice(self._partitions, count))
        for waiting in await asyncio.gather(*map(self._look_at, some)):
            self._known[waiting.partition] = waiting
        found = sorted(self._known.values(), key=lambda each: -each.entries)
        return Backlog(
            sum(each.entries for each in found),
            max((each.age_s for each in found), default=0.0),
            [each for each in found[:PARTITIONS_MAX] if each.entries],
        )

    async def _look_at(self, partition: int) -> Waiting:
        backlog = BacklogOf(self._hot, partition)
        entries = await backlog.count_waiting()
        oldest_ms = await backlog.find_oldest_ms() if entries else None
        age_s = 0.0 if oldest_ms is None else max(0.0, self._clock.time() - oldest_ms / 1000)
        return Waiting(partition, entries, round(age_s, 3))
