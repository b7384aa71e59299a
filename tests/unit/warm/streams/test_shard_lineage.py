"""Readers that follow the plan read every record, parents first, with any crashes."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.warm.streams.shard_lineage import KEPT_MS, Shard, ShardProgress, plan

NAMES = ("r1", "r2", "r3")
LEASE_MS = 1000
NOW_MS = 2_000_000_000_000


def shard(id_: str, parent: str | None = None) -> Shard:
    """A shard of the one stream."""
    return Shard(id_, parent, "table/t/stream/L")


def standing(id_: str, **changes: object) -> ShardProgress:
    """How far a shard is read; lately."""
    return ShardProgress(f"L/{id_}", **{"read_to_ms": NOW_MS, **changes})  # type: ignore[arg-type]  # fields of it


def known(*standings: ShardProgress) -> dict[str, ShardProgress]:
    """By name, as the rows give them."""
    return {each.name: each for each in standings}


def take(
    listed: list[Shard], *standings: ShardProgress, readers: tuple[str, ...] = ()
) -> list[str]:
    """The shards that r1 should take."""
    return [each.id for each in plan(listed, known(*standings), readers, "r1", NOW_MS).take]


def test_child_waits_until_its_parent_is_wholly_read() -> None:
    """The parent is being read, is not being read, or was never seen."""
    family = [shard("a"), shard("b", "a"), shard("c", "a")]

    assert take(family) == ["a"]
    assert take(family, standing("a", holder="r2")) == []
    assert take(family, standing("a", is_done=True)) == ["b", "c"]


def test_shard_whose_parent_is_long_gone_is_read() -> None:
    """It was trimmed before anybody read here, or is done and listed no more."""
    assert take([shard("b", "a")]) == ["b"]
    assert take([shard("b", "a")], standing("a", is_done=True)) == ["b"]


def test_parent_that_is_badly_listed_is_waited_for_and_one_that_is_gone_is_mourned() -> None:
    """A list may lack a shard for a moment; after 24 hours it is gone with what was in it."""
    lately = plan([shard("b", "a")], known(standing("a")), (), "r1", NOW_MS)
    long_ago = standing("a", read_to_ms=NOW_MS - KEPT_MS)
    gone = plan([shard("b", "a")], known(long_ago), (), "r1", NOW_MS)

    assert (lately.take, lately.lost) == ([], [])
    assert ([each.id for each in gone.take], gone.lost) == (["b"], [long_ago])


def test_shards_spread_over_the_readers_that_live() -> None:
    """A reader with too many shards releases some; one with too few claims free ones."""
    family = [shard(f"s{n}") for n in range(6)]
    mine = [standing(f"s{n}", holder="r1") for n in range(4)]

    alone = plan(family, known(*mine), {"r1"}, "r1", NOW_MS)
    with_another = plan(family, known(*mine), {"r1", "r2"}, "r1", NOW_MS)
    other = plan(family, known(*mine), {"r1", "r2"}, "r2", NOW_MS)

    assert ([each.id for each in alone.take], alone.give_back) == (["s4", "s5"], [])
    assert (with_another.take, with_another.give_back) == ([], ["L/s3"])
    assert [each.id for each in other.take] == ["s4", "s5"]


def test_lag_is_that_of_the_shard_that_is_furthest_behind() -> None:
    """Includes shards that no reader has; completed shards have no lag."""
    rows = known(
        standing("a", read_to_ms=0, is_done=True),
        standing("b", read_to_ms=NOW_MS - 5000),
        standing("c", read_to_ms=NOW_MS - 9000, holder="r2"),
    )

    found = plan([shard("b"), shard("c")], rows, {"r1"}, "r1", NOW_MS)

    assert found.late_ms == 9000
    assert plan([], {}, (), "r1", NOW_MS).late_ms == 0


@dataclasses.dataclass
class Part:
    """A shard as it really is; `count` records are in it by now."""

    shard: Shard
    count: int
    is_closed: bool = False


@dataclasses.dataclass
class Held:
    """Shards that a reader believes to hold."""

    turn: int
    place: int


class Simulation:
    """A stream that splits, rows with leases, and readers that may die at each step."""

    def __init__(self) -> None:
        self.parts = [Part(shard("s00"), 2)]
        self.rows: dict[
            str, tuple[int, bool, str, int, int]
        ] = {}  # place, done, holder, until, turn
        self.holds: dict[str, dict[str, Held]] = {name: {} for name in NAMES}
        self.handled: list[tuple[str, int]] = []
        self.now_ms = NOW_MS

    def split(self, number: int, into: int) -> None:
        """End a shard; others continue it, out of order in the list."""
        open_ = [part for part in self.parts if not part.is_closed]
        parent = open_[number % len(open_)]
        parent.is_closed = True
        for _ in range(into):
            name = f"s{len(self.parts):02d}"
            self.parts.insert(number % len(self.parts), Part(shard(name, parent.shard.id), number))

    def put(self, number: int) -> None:
        """Have a record more in a shard."""
        open_ = [part for part in self.parts if not part.is_closed]
        open_[number % len(open_)].count += 1

    def _standings(self) -> dict[str, ShardProgress]:
        return {
            name: ShardProgress(
                name, str(place), done, self.now_ms, who if until > self.now_ms else None
            )
            for name, (place, done, who, until, _) in self.rows.items()
        }

    def look(self, name: str, live: tuple[str, ...] = NAMES) -> None:
        """Claim what the plan assigns, by a conditional write."""
        wanted = plan(
            [part.shard for part in self.parts], self._standings(), live, name, self.now_ms
        )
        for each in wanted.give_back:
            if self._is_current(name, each):
                place, done, who, _, turn = self.rows[each]
                self.rows[each] = place, done, who, 0, turn
            self.holds[name].pop(each, None)
        for each_shard in wanted.take:
            row = self.rows.get(each_shard.name, (0, False, "", 0, 0))
            if row[1] or row[3] > self.now_ms:
                continue
            self.rows[each_shard.name] = row[0], False, name, self.now_ms + LEASE_MS, row[4] + 1
            self.holds[name][each_shard.name] = Held(row[4] + 1, row[0])

    def _is_current(self, name: str, held: str) -> bool:
        mine = self.holds[name].get(held)
        return mine is not None and self.rows[held][4] == mine.turn

    def read(self, name: str, number: int, *, is_noted: bool, page: int = 2) -> None:
        """Read a page of a shard that the reader believes to have; then note it, or die."""
        mine = sorted(self.holds[name])
        if not mine:
            return
        held = mine[number % len(mine)]
        part = next(part for part in self.parts if part.shard.name == held)
        hold = self.holds[name][held]
        end = min(part.count, hold.place + page)
        self.handled += [(held, record) for record in range(hold.place, end)]
        if not is_noted:
            self.holds[name].clear()  # killed: the leases run on
            return
        if not self._is_current(name, held):
            del self.holds[name][held]  # LeaseLost
            return
        is_done = part.is_closed and end == part.count
        hold.place = end
        self.rows[held] = end, is_done, name, self.now_ms + LEASE_MS, hold.turn
        if is_done:
            del self.holds[name][held]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("split", "put", "look", "look", "read", "read", "die", "wait")),
        st.integers(0, 7),
        st.sampled_from(NAMES),
    ),
    max_size=80,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_each_record_is_handled_in_order_and_parents_come_first(
    steps: list[tuple[str, int, str]],
) -> None:
    """Random trees of splits; readers die with a page handled and not noted, or sleep too long."""
    stream = Simulation()
    for what, number, name in steps:
        match what:
            case "split":
                stream.split(number, 1 + number % 3)
            case "put":
                stream.put(number)
            case "look":
                stream.look(name)
            case "read" | "die":
                stream.read(name, number, is_noted=what == "read")
            case _:
                stream.now_ms += LEASE_MS * (number % 3)
    stream.now_ms += LEASE_MS + 1
    stream.holds = {name: {} for name in NAMES}
    for _ in range(40 + 20 * len(stream.parts)):  # one that lives comes to the end
        stream.look("r1", ("r1",))
        for number in range(len(stream.holds["r1"])):
            stream.read("r1", number, is_noted=True)

    first: dict[tuple[str, int], int] = {}
    for moment, record in enumerate(stream.handled):
        first.setdefault(record, moment)
    for part in stream.parts:
        moments = [first[part.shard.name, n] for n in range(part.count)]  # each, at least once
        assert moments == sorted(moments)
        parent = next((p for p in stream.parts if p.shard.name == part.shard.parent_name), None)
        if parent is not None and parent.count and moments:
            assert first[parent.shard.name, parent.count - 1] < moments[0]
