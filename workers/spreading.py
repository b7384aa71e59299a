"""Spreads busy chats over shards, and draws them together when they are calm again.

What a chat needs is measured as it was committed, not as it is written: units of a window, by the
entries' own ts. So neither a store that throttles nor a backlog that is being caught up deceives.
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
from chatserver.domain.shards import is_shards
from chatserver.errors import ChatError
from chatserver.hot.chatlog import ChatLog
from chatserver.telemetry import metrics
from chatserver.warm.shardlist import ShardList
from workers.folding import Work

log = structlog.get_logger()

METERED_MAX: Final = 2_000  # chats of a partition; the one that was silent for longest gives way
UNIT_BYTES: Final = 1024
ITEM_BYTES: Final = 150  # what an item has more than the committed tail: names of attributes, keys
US: Final = 1_000_000


class Window(NamedTuple):
    """What a chat needed in a time: write units from one ts to another."""

    chat: ChatId
    from_ts: int
    to_ts: int
    units: int

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.units * US / (self.to_ts - self.from_ts)


@dataclasses.dataclass(slots=True)
class _Open:
    from_ts: int
    units: int = 0


class LoadMeter:
    """Adds up what chats need, window by window. No I/O."""

    def __init__(self, window_s: float) -> None:
        self._window_us = int(window_s * US)
        self._open: collections.OrderedDict[str, _Open] = collections.OrderedDict()

    def note(self, works: Iterable[Work]) -> list[Window]:
        """Take a batch, in order; return the windows that have ended."""
        units: dict[str, int] = {}
        spans: dict[str, tuple[int, int]] = {}
        for work in works:
            chat, ts = work.item.message.chat, work.committed.ts
            units[chat] = units.get(chat, 0) + units_of(work)
            spans[chat] = spans[chat][0] if chat in spans else ts, ts
        closed = [self._add(chat, *spans[chat], count) for chat, count in units.items()]
        while len(self._open) > METERED_MAX:
            self._open.popitem(last=False)
        return [window for window in closed if window is not None]

    def _add(self, chat: str, first: int, last: int, units: int) -> Window | None:
        window = self._open.setdefault(chat, _Open(first))
        self._open.move_to_end(chat)
        window.units += units
        if last - window.from_ts < self._window_us:
            return None
        self._open[chat] = _Open(last)
        return Window(ChatId(chat), window.from_ts, last, window.units)


def units_of(work: Work) -> int:
    """Return about how many write units an entry takes of its chat's partition.

    A change writes its own item and the one that it changes.
    """
    units = 1 + (len(work.committed.tail) + ITEM_BYTES - 1) // UNIT_BYTES
    return units + 1 if work.committed.target_ts else units


def wanted_shards(rate: float, shards: int, writes_max: int, shards_max: int) -> int:
    """Return over how many shards a chat belongs that is on `shards` and needs `rate` units.

    Up when a shard has to take more than `writes_max`; down when half of that would be left on
    half as many: in between it stays, so that a rate which varies does not move it to and fro.
    """
    if rate > shards * writes_max:
        return _enough(rate / writes_max, shards_max)
    if rate < shards * writes_max / 4:
        return min(shards, _enough(2 * rate / writes_max, shards_max))
    return shards


def _enough(number: float, shards_max: int) -> int:
    shards = 1
    while shards < number and shards < shards_max:
        shards *= 2
    assert is_shards(shards)
    return shards


class Spreading:
    """Decides for the chats of one partition; whoever holds its lease does."""

    def __init__(self, shards: ShardList, chat_log: ChatLog, settings: Warm) -> None:
        self._shards = shards
        self._log = chat_log
        self._settings = settings
        self._meter = LoadMeter(settings.shard_window_s)
        self._windows: list[Window] = []
        self._calm_from: dict[ChatId, int] = {}  # of spread chats alone: since which ts

    def note(self, works: Iterable[Work]) -> None:
        """Take what a batch asks for, written or not; `move` follows, or its windows are forgotten.

        A chat that is throttled is written late, and is the one to spread.
        """
        if self._settings.shard_writes_per_s:
            self._windows = self._meter.note(works)

    async def move(self) -> None:
        """Spread, or draw together, the chats of which a window has ended.

        Guarantees:
            Of a chat at most one move in a window, and none while the one before lies ahead. What
            fails is looked at again after the next window.
            Cost: nothing for chats that stay as they are; else two calls to each of the stores.
        """
        windows, self._windows = self._windows, []
        if not windows:
            return
        try:
            layouts = await self._shards.get()
            for window in windows:
                shards = layouts.of(window.chat).shards
                if (wanted := self._decide(window, shards)) != shards:
                    await self._move(window, shards, wanted)
        except ChatError as exc:
            metrics.SHARD_MOVES.labels("failed").inc()
            log.warning("shards.not_moved", error=exc.message)

    def _decide(self, window: Window, shards: int) -> int:
        limits = self._settings.shard_writes_per_s, self._settings.shards_max
        wanted = wanted_shards(window.rate, shards, *limits)
        if wanted >= shards:
            self._calm_from.pop(window.chat, None)
            return wanted
        calm_from = self._calm_from.setdefault(window.chat, window.from_ts)
        return wanted if window.to_ts - calm_from >= self._settings.shard_calm_s * US else shards

    async def _move(self, window: Window, shards: int, wanted: int) -> None:
        find = functools.partial(self._log.find_newest_ts, window.chat)
        outcome = await self._shards.spread(window.chat, wanted, find)
        metrics.SHARD_MOVES.labels(outcome).inc()
        if outcome == "moved":
            self._calm_from.pop(window.chat, None)
        told = log.warning if outcome == "full" else log.info
        told(
            "shards.move",
            outcome=outcome,
            chat=window.chat,
            shards=shards,
            wanted=wanted,
            rate=round(window.rate),
        )
