"""Inconsistencies that the audit finds in a range of a chat."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.domain.seq_gap_checks import find_longest_increasing_subsequence
from chatserver.operations.audit.consistency_rules import (
    RangeEntries,
    Window,
    find_inconsistencies,
)
from chatserver.protocol.frames import Message

CHAT = "c1"


@dataclasses.dataclass(frozen=True)
class Item:
    """An item whose checksum is correct."""

    ts: int
    message: Message | None
    verdict: str = "right"


def entry(seq: int, **changes: Any) -> Message:
    names = {"mid": f"m{seq}", "sender": "alice", "ref": f"r{seq}", "kind": "text", "body": "text"}
    return Message(**{"seq": seq, "ts": seq * 10, "chat": CHAT, **names, **changes})


def item(seq: int, **changes: Any) -> Item:
    message = entry(seq, **changes)
    return Item(message.ts, message)


def row(first: int, last: int) -> ArchiveSegment:
    """Return a segment's row in the manifest."""
    return ArchiveSegment(
        ChatId(CHAT), Seq(first), Seq(last), Ts(first * 10), Ts(last * 10), 1, 1, "x"
    )


def entries(first: int, last: int, **tiers: Any) -> RangeEntries:
    """Return a range of the chat; the tiers contain only the given data."""
    window = Window(first, last, first * 10, last * 10)
    empty: dict[str, Any] = {
        "stored": last, "head": last, "known": last, "top": 0, "hot": {}, "items": [],
        "markers": [], "rows": [], "cold": {}, "broken": [],
    }  # fmt: skip
    return RangeEntries(chat=CHAT, window=window, **(empty | tiers))


def kinds(found: RangeEntries) -> list[tuple[str, int, int]]:
    """Return kind, first and last seq of each finding."""
    return [(each.kind, each.first, each.last) for each in find_inconsistencies(found)]


@given(st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)),
       st.sets(st.integers(1, 40)), st.integers(0, 40))  # fmt: skip
def test_entries_in_no_tier_are_reported_missing(
    items: set[int], marked: set[int], hot: set[int], cold: set[int], stored: int
) -> None:
    """Redis alone is enough only above the stored position."""
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

    reported: dict[str, set[int]] = {
        "item_missing": set(),
        "item_only_in_log": set(),
        "log_missing": set(),
        "stored_behind": set(),
    }
    for each in found:
        reported[each.kind] |= set(range(each.first, each.last + 1))
    below = set(range(1, stored + 1)) - items - marked - cold
    above = set(range(stored + 1, 41)) - items - marked - cold - hot
    assert reported["item_missing"] == below - hot
    assert reported["item_only_in_log"] == below & hot
    assert reported["log_missing"] == above
    assert reported["stored_behind"] == set(range(stored + 1, 41)) & (items | marked | cold)


def test_entries_that_arrive_during_the_audit_may_not_be_recorded_as_stored_yet() -> None:
    """In a busy chat there are always some, so that confirming them would never end."""
    found = entries(1, 4, stored=1, known=2, items=[item(seq) for seq in range(1, 5)])

    assert kinds(found) == [("stored_behind", 2, 2)]


def test_tiers_with_the_same_revision_and_different_content_are_reported() -> None:
    """A newer revision in one tier is allowed; another message at the same seq is not."""
    changed = entry(1, body="new", rev=9)
    assert kinds(entries(1, 1, items=[item(1)], hot={1: changed})) == []
    assert kinds(entries(1, 1, items=[item(1)], cold={1: changed}, rows=[row(1, 1)], top=1)) == []
    for other in (entry(1, body="new"), entry(1, mid="m2", rev=9), entry(1, ts=11)):
        assert kinds(entries(1, 1, items=[item(1)], hot={1: other})) == [("tiers_differ", 1, 1)]
    assert kinds(entries(1, 1, hot={1: entry(1, body="x")}, cold={1: entry(1)}, top=1,
                         rows=[row(1, 1)])) == [("tiers_differ", 1, 1)]  # fmt: skip


def test_expiring_message_in_the_archive_may_have_no_body() -> None:
    """Only the warm tier has the body of an expiring message."""
    ends = {"expires_at": 99}
    archived = {1: entry(1, body="", deleted=True, **ends)}

    assert (
        kinds(entries(1, 1, items=[item(1, **ends)], cold=archived, rows=[row(1, 1)], top=1)) == []
    )


def test_seq_marked_as_lost_may_still_get_its_message() -> None:
    """A late message replaces the marker; a dead letter's tombstone has another revision."""
    lost = item(1, kind="lost", mid="lost-1", ts=9, deleted=True, body="")
    dead_letter = item(1, deleted=True, body="", rev=1, mid="-")

    assert kinds(entries(1, 1, items=[item(1)], markers=[lost])) == []
    assert kinds(entries(1, 1, items=[dead_letter], hot={1: entry(1)})) == []


@given(st.lists(st.integers(1, 9), max_size=9))
def test_longest_increasing_subsequence_has_maximum_length(seqs: list[int]) -> None:
    """The result is increasing, and no increasing subsequence is longer."""
    kept = [seqs[number] for number in sorted(find_longest_increasing_subsequence(seqs))]

    longest = [1] * len(seqs)
    for at, seq in enumerate(seqs):
        longest[at] = 1 + max((longest[n] for n in range(at) if seqs[n] < seq), default=0)
    assert kept == sorted(set(kept))
    assert len(kept) == max(longest, default=0)
