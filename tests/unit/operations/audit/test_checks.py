"""Inconsistencies that the audit finds in a range of a chat."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.archive_segments import Segment
from chatserver.domain.history_checks import longest_rising_subsequence
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.operations.audit.checks import (
    RangeEntries,
    Window,
    find_inconsistencies,
)
from chatserver.protocol.frames import Message

CHAT = "c1"


@dataclasses.dataclass(frozen=True)
class Item:
    """An item that is what was written."""

    ts: int
    message: Message | None
    verdict: str = "right"


def entry(seq: int, **changes: Any) -> Message:
    """An entry of the chat."""
    names = {"mid": f"m{seq}", "sender": "alice", "ref": f"r{seq}", "kind": "text", "body": "text"}
    return Message(**{"seq": seq, "ts": seq * 10, "chat": CHAT, **names, **changes})


def item(seq: int, **changes: Any) -> Item:
    """Its item."""
    message = entry(seq, **changes)
    return Item(message.ts, message)


def row(first: int, last: int) -> Segment:
    """A segment."""
    return Segment(ChatId(CHAT), Seq(first), Seq(last), Ts(first * 10), Ts(last * 10), 1, 1, "x")


def entries(first: int, last: int, **has: Any) -> RangeEntries:
    """A stretch of which the tiers have nothing but this."""
    window = Window(first, last, first * 10, last * 10)
    empty: dict[str, Any] = {
        "stored": last, "head": last, "top": 0, "hot": {}, "items": [], "markers": [],
        "rows": [], "cold": {}, "broken": [],
    }  # fmt: skip
    return RangeEntries(chat=CHAT, window=window, **(empty | has))


def kinds(found: RangeEntries) -> list[tuple[str, int, int]]:
    """The kinds of the findings."""
    return [(each.kind, each.first, each.last) for each in find_inconsistencies(found)]


@given(st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)),
       st.sets(st.integers(1, 40)), st.integers(0, 40))  # fmt: skip
def test_exactly_what_no_tier_has_is_missing(
    items: set[int], marked: set[int], hot: set[int], cold: set[int], stored: int
) -> None:
    """Below the mark Redis is no proof, and above it is."""
    found = find_inconsistencies(
        entries(
            1,
            40,
            stored=stored,
            items=[item(seq) for seq in sorted(items)],
            markers=[item(seq, kind="lost", mid="-") for seq in sorted(marked)],
            hot={seq: entry(seq) for seq in hot},
            cold={seq: entry(seq) for seq in cold},
        )
    )

    on_progress: dict[str, set[int]] = {
        "item_missing": set(),
        "item_only_in_log": set(),
        "log_missing": set(),
    }
    for each in found:
        on_progress[each.kind] |= set(range(each.first, each.last + 1))
    below = set(range(1, stored + 1)) - items - marked - cold
    above = set(range(stored + 1, 41)) - items - marked - cold - hot
    assert on_progress["item_missing"] == below - hot
    assert on_progress["item_only_in_log"] == below & hot
    assert on_progress["log_missing"] == above


def test_versions_of_one_revision_differ_and_those_of_two_do_not() -> None:
    """A change on its way is no finding; another message in the same place always is one."""
    changed = entry(1, body="new", rev=9)
    assert kinds(entries(1, 1, items=[item(1)], hot={1: changed})) == []
    assert kinds(entries(1, 1, items=[item(1)], cold={1: changed}, rows=[row(1, 1)], top=1)) == []
    for other in (entry(1, body="new"), entry(1, mid="m2", rev=9), entry(1, ts=11)):
        assert kinds(entries(1, 1, items=[item(1)], hot={1: other})) == [("tiers_differ", 1, 1)]
    assert kinds(entries(1, 1, hot={1: entry(1, body="x")}, cold={1: entry(1)}, top=1,
                         rows=[row(1, 1)])) == [("tiers_differ", 1, 1)]  # fmt: skip


def test_expiring_message_is_its_place_alone_in_the_archive() -> None:
    """Its text is in the warm tier until it ends."""
    ends = {"expires_at": 99}
    archived = {1: entry(1, body="", deleted=True, **ends)}

    assert (
        kinds(entries(1, 1, items=[item(1, **ends)], cold=archived, rows=[row(1, 1)], top=1)) == []
    )


def test_place_that_was_given_up_may_be_taken_after_all() -> None:
    """Should the message come, it counts; a tombstone of a dead letter has another revision."""
    lost = item(1, kind="lost", mid="lost-1", ts=9, deleted=True, body="")
    buried = item(1, deleted=True, body="", rev=1, mid="-")

    assert kinds(entries(1, 1, items=[item(1)], markers=[lost])) == []
    assert kinds(entries(1, 1, items=[buried], hot={1: entry(1)})) == []


@given(st.lists(st.integers(1, 9), max_size=9))
def test_longest_rising_subsequence_is_a_longest_rising_part(seqs: list[int]) -> None:
    """As many as can be, in order."""
    kept = [seqs[number] for number in sorted(longest_rising_subsequence(seqs))]

    longest = [1] * len(seqs)
    for at, seq in enumerate(seqs):
        longest[at] = 1 + max((longest[n] for n in range(at) if seqs[n] < seq), default=0)
    assert kept == sorted(set(kept))
    assert len(kept) == max(longest, default=0)
