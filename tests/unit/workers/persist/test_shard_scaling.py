"""Sharding decisions: units by chat, the number of shards, and when it changes."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.config import Warm
from chatserver.domain.ids import GatewayId, Seq, Ts
from chatserver.domain.write_sharding import Layout, Layouts, ShardFloor, ShardingPeriod, is_shards
from chatserver.errors import Unavailable
from chatserver.hot.chats.persist_backlog import CommittedMessage
from chatserver.protocol.frames import Message
from chatserver.warm.messages.messages import PersistItem
from chatserver.warm.messages.sharded_chats import ShardedChats
from tests.unit.warm.messages.shard_rows import Rows, Time
from workers.persist import shard_scaling
from workers.persist.batch_changes import EntryWrite
from workers.persist.shard_scaling import LoadMeter, ShardScaling, compute_shards, estimate_units

pytestmark = pytest.mark.constants({"workers.persist.shard_scaling.SHARD_CALM_S": 60.0})

US = 1_000_000
MAX = 500


def work(ts_s: float, chat: str = "c", size: int = 200, target_ts: int = 0) -> EntryWrite:
    """Return an entry with this commit time and size of its tail."""
    ts = int(ts_s * US)
    message = Message(1, ts, chat, "m", "alice", "r", "text", "x")
    committed = CommittedMessage(Seq(1), Ts(ts), None, b"x" * size, target_ts)
    return EntryWrite(GatewayId("g"), committed, PersistItem(message, None))


def iter_load(rate: int, from_s: float, to_s: float, chat: str = "c") -> Iterator[EntryWrite]:
    """Yield entries of one unit each, evenly."""
    count = int((to_s - from_s) * rate)
    return (work(from_s + n / rate, chat) for n in range(count))


def make_load(rate: int, from_s: float, to_s: float, chat: str = "c") -> list[EntryWrite]:
    """Return entries of one unit each, evenly."""
    return list(iter_load(rate, from_s, to_s, chat))


@pytest.mark.parametrize(
    ("size", "target_ts", "units"),
    [(200, 0, 1), (874, 0, 1), (875, 0, 2), (16_000, 0, 16), (200, 5, 2)],
)
def test_units_are_the_write_units_of_the_item(size: int, target_ts: int, units: int) -> None:
    """An item costs one unit per KB; a change writes two items."""
    assert estimate_units(work(1, size=size, target_ts=target_ts)) == units


def test_window_rate_depends_on_commit_times_only() -> None:
    """A backlog that is processed faster does not make a chat busier."""
    slowly, at_once = LoadMeter(10), LoadMeter(10)
    entries = make_load(100, 1000, 1030)

    windows = [window for each in entries for window in slowly.record([each])]
    whole = at_once.record(entries)

    assert [round(window.rate) for window in windows] == [100, 100]
    assert [round(window.rate) for window in whole] == [100]


def test_window_rate_after_a_pause_is_low() -> None:
    """A chat with one message after an hour is idle."""
    meter = LoadMeter(10)
    meter.record(make_load(1000, 0, 1))

    (window,) = meter.record([work(3600)])

    assert window.rate < 1


def test_meter_evicts_the_chat_that_was_idle_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is bounded, and a busy chat is never evicted."""
    monkeypatch.setattr(shard_scaling, "METERED_MAX", 20)
    meter = LoadMeter(10)
    windows = []

    for second in range(1000, 1012):
        others = [work(second, f"other-{second}-{n}") for n in range(15)]
        windows += meter.record([*make_load(50, second, second + 1), *others])

    assert len(meter._open) == 20
    assert [window.chat for window in windows] == ["c"]


@settings(deadline=None)
@given(st.floats(0, 100_000), st.integers(0, 4).map(lambda n: 2**n), st.sampled_from([2, 8, 16]))
def test_wanted_shards_fit_the_rate_and_are_stable(
    rate: float, shards: int, shards_max: int
) -> None:
    """No shard is overloaded, up to the maximum, and the same rate causes no other change."""
    wanted = compute_shards(rate, shards, MAX, shards_max)

    assert is_shards(wanted)
    assert rate <= wanted * MAX or wanted >= shards_max
    assert compute_shards(rate, wanted, MAX, shards_max) == wanted
    if wanted < shards:  # a small increase must not add shards again
        assert rate * 2 <= wanted * MAX or wanted >= shards_max
    if rate <= shards * MAX and rate >= shards * MAX / 4:
        assert wanted == shards


class Log:
    """A hot tier that must not be called."""

    async def find_newest_ts(self, chat: str) -> int | None:
        raise AssertionError("must not be called")


class Shards:
    """A shard list that applies changes at once."""

    def __init__(self, shards: int = 1) -> None:
        self.layout = Layout((ShardingPeriod(1, shards),)) if shards > 1 else Layout()
        self.moves: list[int] = []
        self.floor = ShardFloor(0, 1)
        self.is_down = False

    async def get_for_reading(self, upto_ts: int) -> Layouts:
        if self.is_down:
            raise Unavailable("down")
        return Layouts({"c": self.layout}, {"c": self.floor})

    async def reshard(
        self, chat: str, shards: int, find: Callable[[], Awaitable[int | None]]
    ) -> str:
        self.moves.append(shards)
        self.layout = Layout(
            (*self.layout.periods, ShardingPeriod(self.layout.from_ts + 1, shards))
        )
        return "moved"


def sharding_of(shards: Shards, **changes: Any) -> ShardScaling:
    """Return the sharding decision with these settings."""
    warm = Warm(**{"shard_writes_per_s": MAX, **changes})
    return ShardScaling(cast(Any, shards), cast(Any, Log()), warm)


async def record_load(sharding: ShardScaling, entries: list[EntryWrite]) -> None:
    """Record entries in batches of a hundred."""
    for start in range(0, len(entries), 100):
        sharding.record(entries[start : start + 100])
        await sharding.reshard()


async def test_busy_chat_gets_shards_at_once_and_loses_them_after_a_calm_time() -> None:
    """Shards are added after a window and removed after the calm time."""
    shards = Shards()
    sharding = sharding_of(shards)

    await record_load(sharding, make_load(1500, 0, 11))
    assert shards.moves == [4]
    await record_load(sharding, make_load(600, 11, 40))
    assert shards.moves == [4]
    await record_load(sharding, make_load(20, 40, 85))
    assert shards.moves == [4], "not calm for long enough"
    await record_load(sharding, make_load(600, 85, 120))
    await record_load(sharding, make_load(20, 120, 165))
    assert shards.moves == [4], "the calm was interrupted"
    await record_load(sharding, make_load(20, 165, 205))

    assert shards.moves == [4, 1]


@settings(max_examples=30, deadline=None)
@given(st.integers(600, 5000), st.floats(0, 1), st.floats(0, 0.3))
async def test_sharding_starts_within_two_seconds_of_load(
    rate: int, phase_s: float, late_s: float
) -> None:
    """This holds for any phase of the window; batches arrive every 50 ms, and late."""
    rows, time = Rows(), Time()
    shards = ShardedChats(cast(Any, rows), time)
    onset_s = time.now_s + 5 + phase_s
    loads = iter_load(1, time.now_s, onset_s), iter_load(rate, onset_s, onset_s + 2.5)
    entries = itertools.chain(*loads)
    next_entry = next(entries, None)

    class Newest:
        async def find_newest_ts(self, chat: str) -> int:
            return int(time.time() * US)

    sharding = ShardScaling(shards, cast(Any, Newest()), Warm(shard_writes_per_s=MAX))
    started_s: list[float] = []
    while next_entry is not None and not started_s:
        time.now_s += 0.05
        due = []
        while next_entry is not None and next_entry.committed.ts <= (time.now_s - late_s) * US:
            due.append(next_entry)
            next_entry = next(entries, None)
        if due:
            sharding.record(due)
            await sharding.reshard()
            layouts = await shards.get_for_writing(due[-1].committed.ts)
            stamps = [each.committed.ts for each in due]
            started_s = [ts / US for ts in stamps if layouts.get_partition("c", ts) != "c"]

    assert started_s, "the chat was never sharded"
    assert started_s[0] - onset_s <= 2


async def test_floor_keeps_shards_and_adds_them() -> None:
    """Until a floor of `chatserver shards set` ends, the chat keeps at least that many shards."""
    shards = Shards(2)
    sharding = sharding_of(shards)
    shards.floor = ShardFloor(100 * US, 4)

    await record_load(sharding, make_load(20, 0, 99))
    assert shards.moves == [4]
    await record_load(sharding, make_load(20, 99, 101))

    assert shards.moves == [4, 1]


async def test_chat_is_never_sharded_if_sharding_is_off() -> None:
    """A setting of 0 turns sharding off."""
    shards = Shards()

    await record_load(sharding_of(shards, shard_writes_per_s=0), make_load(600, 0, 11))

    assert shards.moves == []


async def test_store_that_is_down_does_not_stop_persisting() -> None:
    """The change is repeated after the next window."""
    shards = Shards()
    sharding = sharding_of(shards)
    shards.is_down = True
    await record_load(sharding, make_load(600, 0, 11))
    shards.is_down = False
    await record_load(sharding, make_load(600, 11, 22))

    assert shards.moves == [2]
