"""Shard lineage: readers read every record, parents first, with any crashes."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.warm.streams.shard_lineage import KEPT_MS, Shard, ShardProgress, plan

NAMES = ("r1", "r2", "r3")
LEASE_MS = 1000
NOW_MS = 2_000_000_000_000


def shard(id_: str, parent: str | None = None) -> Shard:
    """Return a shard of the stream."""
    return Shard(id_, parent, "table/t/stream/L")


def progress(id_: str, **changes: object) -> ShardProgress:
    """Return the progress of a shard that was read recently."""
    return ShardProgress(f"L/{id_}", **{"read_to_ms": NOW_MS, **changes})  # type: ignore[arg-type]  # its fields


def known(*rows: ShardProgress) -> dict[str, ShardProgress]:
    """Return the progress by shard name."""
    return {each.name: each for each in rows}


def plan_claims(
    listed: list[Shard], *rows: ShardProgress, readers: tuple[str, ...] = ()
) -> list[str]:
    """Return the shards that r1 should claim."""
    return [each.id for each in plan(listed, known(*rows), readers, "r1", NOW_MS).to_claim]


def test_child_waits_until_its_parent_is_completely_read() -> None:
    """The parent may be held by a reader, be free, or have no progress yet."""
    family = [shard("a"), shard("b", "a"), shard("c", "a")]

    assert plan_claims(family) == ["a"]
    assert plan_claims(family, progress("a", holder="r2")) == []
    assert plan_claims(family, progress("a", is_done=True)) == ["b", "c"]


def test_shard_without_a_listed_parent_is_read() -> None:
    """The parent was trimmed before the first reader, or is completely read."""
    assert plan_claims([shard("b", "a")]) == ["b"]
    assert plan_claims([shard("b", "a")], progress("a", is_done=True)) == ["b"]


def test_unlisted_parent_is_waited_for_until_it_is_lost() -> None:
    """A list may lack a shard temporarily; after 24 hours its records are lost."""
    recent = plan([shard("b", "a")], known(progress("a")), (), "r1", NOW_MS)
    outdated = progress("a", read_to_ms=NOW_MS - KEPT_MS)
    expired = plan([shard("b", "a")], known(outdated), (), "r1", NOW_MS)

    assert (recent.to_claim, recent.lost) == ([], [])
    assert ([each.id for each in expired.to_claim], expired.lost) == (["b"], [outdated])


def test_shards_are_balanced_over_live_readers() -> None:
    """A reader with too many shards releases some; one with too few claims free ones."""
    family = [shard(f"s{n}") for n in range(6)]
    own = [progress(f"s{n}", holder="r1") for n in range(4)]

    alone = plan(family, known(*own), {"r1"}, "r1", NOW_MS)
    with_another = plan(family, known(*own), {"r1", "r2"}, "r1", NOW_MS)
    other = plan(family, known(*own), {"r1", "r2"}, "r2", NOW_MS)

    assert ([each.id for each in alone.to_claim], alone.to_release) == (["s4", "s5"], [])
    assert (with_another.to_claim, with_another.to_release) == ([], ["L/s3"])
    assert [each.id for each in other.to_claim] == ["s4", "s5"]


def test_lag_is_the_lag_of_the_slowest_shard() -> None:
    """Shards without a reader count; completed shards have no lag."""
    rows = known(
        progress("a", read_to_ms=0, is_done=True),
        progress("b", read_to_ms=NOW_MS - 5000),
        progress("c", read_to_ms=NOW_MS - 9000, holder="r2"),
    )

    found = plan([shard("b"), shard("c")], rows, {"r1"}, "r1", NOW_MS)

    assert found.late_ms == 9000
    assert plan([], {}, (), "r1", NOW_MS).late_ms == 0


@dataclasses.dataclass
class StreamShard:
    """A shard of the simulated stream with `count` records."""

    shard: Shard
    count: int
    is_closed: bool = False


@dataclasses.dataclass
class HeldLease:
    """A lease that a reader may have lost."""

    token: int
    position: int


class Simulation:
    """A stream that splits, rows with leases, and readers that may die at each step."""

    def __init__(self) -> None:
        self.parts = [StreamShard(shard("s00"), 2)]
        self.rows: dict[
            str, tuple[int, bool, str, int, int]
        ] = {}  # position, done, holder, until, token
        self.held_leases: dict[str, dict[str, HeldLease]] = {name: {} for name in NAMES}
        self.handled: list[tuple[str, int]] = []
        self.now_ms = NOW_MS

    def split(self, number: int, into: int) -> None:
        """Close a shard and add its children, in any order of the list."""
        open_ = [part for part in self.parts if not part.is_closed]
        parent = open_[number % len(open_)]
        parent.is_closed = True
        for _ in range(into):
            name = f"s{len(self.parts):02d}"
            self.parts.insert(
                number % len(self.parts), StreamShard(shard(name, parent.shard.id), number)
            )

    def put(self, number: int) -> None:
        """Add a record to a shard."""
        open_ = [part for part in self.parts if not part.is_closed]
        open_[number % len(open_)].count += 1

    def _progress(self) -> dict[str, ShardProgress]:
        return {
            name: ShardProgress(
                name, str(position), done, self.now_ms, holder_name if until > self.now_ms else None
            )
            for name, (position, done, holder_name, until, _) in self.rows.items()
        }

    def claim_shards(self, name: str, live: tuple[str, ...] = NAMES) -> None:
        """Claim what the plan assigns, by a conditional write."""
        wanted = plan(
            [part.shard for part in self.parts], self._progress(), live, name, self.now_ms
        )
        for each in wanted.to_release:
            if self._is_current(name, each):
                position, done, holder_name, _, token = self.rows[each]
                self.rows[each] = position, done, holder_name, 0, token
            self.held_leases[name].pop(each, None)
        for each_shard in wanted.to_claim:
            row = self.rows.get(each_shard.name, (0, False, "", 0, 0))
            if row[1] or row[3] > self.now_ms:
                continue
            self.rows[each_shard.name] = row[0], False, name, self.now_ms + LEASE_MS, row[4] + 1
            self.held_leases[name][each_shard.name] = HeldLease(row[4] + 1, row[0])

    def _is_current(self, name: str, held: str) -> bool:
        own = self.held_leases[name].get(held)
        return own is not None and self.rows[held][4] == own.token

    def read(self, name: str, number: int, *, is_saved: bool, page: int = 2) -> None:
        """Read a page of a held shard; then save the progress, or crash."""
        own = sorted(self.held_leases[name])
        if not own:
            return
        held = own[number % len(own)]
        part = next(part for part in self.parts if part.shard.name == held)
        hold = self.held_leases[name][held]
        end = min(part.count, hold.position + page)
        self.handled += [(held, record) for record in range(hold.position, end)]
        if not is_saved:
            self.held_leases[name].clear()  # a crash: the leases expire later
            return
        if not self._is_current(name, held):
            del self.held_leases[name][held]  # LeaseLost
            return
        is_done = part.is_closed and end == part.count
        hold.position = end
        self.rows[held] = end, is_done, name, self.now_ms + LEASE_MS, hold.token
        if is_done:
            del self.held_leases[name][held]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("split", "put", "claim", "claim", "read", "read", "crash", "wait")),
        st.integers(0, 7),
        st.sampled_from(NAMES),
    ),
    max_size=80,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_each_record_is_handled_in_order_after_parents(
    steps: list[tuple[str, int, str]],
) -> None:
    """Shards split at random; readers crash after unsaved pages, or lose their leases."""
    stream = Simulation()
    for what, number, name in steps:
        match what:
            case "split":
                stream.split(number, 1 + number % 3)
            case "put":
                stream.put(number)
            case "claim":
                stream.claim_shards(name)
            case "read" | "crash":
                stream.read(name, number, is_saved=what == "read")
            case _:
                stream.now_ms += LEASE_MS * (number % 3)
    stream.now_ms += LEASE_MS + 1
    stream.held_leases = {name: {} for name in NAMES}
    for _ in range(40 + 20 * len(stream.parts)):  # one live reader reads everything
        stream.claim_shards("r1", ("r1",))
        for number in range(len(stream.held_leases["r1"])):
            stream.read("r1", number, is_saved=True)

    first: dict[tuple[str, int], int] = {}
    for index, record in enumerate(stream.handled):
        first.setdefault(record, index)
    for part in stream.parts:
        indexes = [first[part.shard.name, n] for n in range(part.count)]  # each at least once
        assert indexes == sorted(indexes)
        parent = next((p for p in stream.parts if p.shard.name == part.shard.parent_name), None)
        if parent is not None and parent.count and indexes:
            assert first[parent.shard.name, parent.count - 1] < indexes[0]
