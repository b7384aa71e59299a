"""Write sharding of busy chats: adapts the number of shards of each chat to its load.

The load is measured in write units per second, based on the ts of the entries, not on the time of
the writes. So neither throttling nor a backlog distorts it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from chatserver.config import Warm
from chatserver.domain.ids import ChatId
from chatserver.domain.write_sharding import is_shards
from chatserver.errors import ChatError
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.telemetry import metrics
from chatserver.warm.messages.sharded_chats import ShardedChats
from workers.persist.batch_changes import EntryWrite

log = structlog.get_logger()

SHARD_WINDOW_S = 0.5  # minimum time over which the write rate is measured
SHARD_CALM_S = 600.0  # after this time with a low write rate, a chat gets fewer shards

METERED_MAX: Final = 2_000  # maximum measured chats; one more drops the least recently active
UNIT_BYTES: Final = 1024
ITEM_BYTES: Final = 150  # bytes of an item in addition to the entry's JSON: attribute names, keys
US: Final = 1_000_000


class LoadWindow(NamedTuple):
    """Write units of a chat between two ts."""

    chat: ChatId
    from_ts: int
    to_ts: int
    units: int

    @property
    def rate(self) -> float:
        """Write units per second."""
        return self.units * US / (self.to_ts - self.from_ts)


@dataclasses.dataclass(slots=True)
class _Open:
    from_ts: int
    units: int = 0


class LoadMeter:
    """Sums the write units of each chat by time window. No I/O."""

    def __init__(self, window_s: float) -> None:
        self._window_us = int(window_s * US)
        self._open: collections.OrderedDict[str, _Open] = collections.OrderedDict()

    def record(self, writes: Iterable[EntryWrite]) -> list[LoadWindow]:
        """Add a batch in commit order; return the windows that have ended."""
        units: dict[str, int] = {}
        firsts: dict[str, int] = {}
        lasts: dict[str, int] = {}
        for write in writes:
            chat, ts = write.item.message.chat, write.committed.ts
            units[chat] = units.get(chat, 0) + estimate_units(write)
            firsts.setdefault(chat, ts)
            lasts[chat] = ts
        closed = [
            self._add(chat, firsts[chat], lasts[chat], count) for chat, count in units.items()
        ]
        while len(self._open) > METERED_MAX:
            self._open.popitem(last=False)
        return [window for window in closed if window is not None]

    def _add(self, chat: str, first: int, last: int, units: int) -> LoadWindow | None:
        window = self._open.setdefault(chat, _Open(first))
        self._open.move_to_end(chat)
        window.units += units
        if last - window.from_ts < self._window_us:
            return None
        self._open[chat] = _Open(last)
        return LoadWindow(ChatId(chat), window.from_ts, last, window.units)


def estimate_units(write: EntryWrite) -> int:
    """Return the approximate write units that an entry consumes in its chat's partition.

    A change writes two items: its own item, and the item of the changed message.
    """
    units = 1 + (len(write.committed.tail) + ITEM_BYTES - 1) // UNIT_BYTES
    return units + 1 if write.committed.target_ts else units


def compute_shards(rate: float, shards: int, writes_max: int, shards_max: int) -> int:
    """Return the target number of shards for a chat with `shards` and `rate` units per second.

    The number increases if a shard gets more than `writes_max` units per second, and decreases if
    each shard gets less than a quarter of that. In between, it is unchanged, so that a fluctuating
    rate does not cause repeated changes.
    """
    if rate > shards * writes_max:
        return _round_up(rate / writes_max, shards_max)
    if rate < shards * writes_max / 4:
        return min(shards, _round_up(2 * rate / writes_max, shards_max))
    return shards


def _round_up(number: float, shards_max: int) -> int:
    shards = 1
    while shards < number and shards < shards_max:
        shards *= 2
    assert is_shards(shards)
    return shards


class ShardScaling:
    """Decides on the sharding of a partition's chats, in the worker that holds the lease."""

    def __init__(self, shards: ShardedChats, chat_log: ChatLog, settings: Warm) -> None:
        self._shards = shards
        self._log = chat_log
        self._settings = settings
        self._meter = LoadMeter(SHARD_WINDOW_S)
        self._windows: list[LoadWindow] = []
        self._calm_from: dict[ChatId, int] = {}  # sharded chat → ts since which its load is low

    def record(self, writes: Iterable[EntryWrite]) -> None:
        """Add the entries of a batch when they are queued. Call `reshard` before the next batch."""
        if self._settings.shard_writes_per_s:
            self._windows = self._meter.record(writes)

    async def reshard(self) -> None:
        """Change the number of shards of chats whose measurement window has ended, if needed.

        Guarantees:
            At most one change per chat and window, and none until the previous change is in effect.
            A failed change is reconsidered after the next window.
            Cost: nothing for chats that need no change.
        """
        windows, self._windows = self._windows, []
        if not windows:
            return
        try:
            layouts = await self._shards.get_for_reading(
                max(recorded.to_ts for recorded in windows)
            )
            for window in windows:
                shards = layouts.of(window.chat).shards
                floor = layouts.get_shards_min(window.chat, window.to_ts)
                if (target := max(floor, self._decide(window, shards))) != shards:
                    await self._reshard(window, shards, target)
        except ChatError as exc:
            metrics.SHARD_MOVES.labels("failed").inc()
            log.warning("shards.move_failed", error=exc.message)

    def _decide(self, window: LoadWindow, shards: int) -> int:
        limits = self._settings.shard_writes_per_s, self._settings.shards_max
        target = compute_shards(window.rate, shards, *limits)
        if target >= shards:
            self._calm_from.pop(window.chat, None)
            return target
        calm_from = self._calm_from.setdefault(window.chat, window.from_ts)
        return target if window.to_ts - calm_from >= SHARD_CALM_S * US else shards

    async def _reshard(self, window: LoadWindow, shards: int, target: int) -> None:
        find = functools.partial(self._log.find_newest_ts, window.chat)
        outcome = await self._shards.reshard(window.chat, target, find)
        metrics.SHARD_MOVES.labels(outcome).inc()
        if outcome == "moved":
            self._calm_from.pop(window.chat, None)
        write_log = log.warning if outcome == "full" else log.info
        write_log(
            "shards.move",
            outcome=outcome,
            chat=window.chat,
            shards=shards,
            target=target,
            rate=round(window.rate),
        )
