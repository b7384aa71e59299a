"""Consistency rules for a range of seqs in a chat, across all tiers. No I/O.

Each seq up to the `stored` seq in Redis must exist in DynamoDB or S3, at exactly one ts; each later
seq must exist in some tier. A seq that DynamoDB has is above `stored` only until the persist worker
has recorded it. Copies of an entry with the same `rev` (seq of its last change) must be
equal, and checksums must match. A tombstone counts as an entry, and so does a marker: the item that
replaces an expired or lost entry.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from chatserver.domain.archive_segments import LOST_KIND, ArchiveSegment
from chatserver.domain.seq_gap_checks import (
    find_longest_increasing_subsequence,
    iter_missing_ranges,
)
from chatserver.operations.audit.model import RuleFinding
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import build_tombstone
from chatserver.warm.archive.archivable_entries import CheckedItem


class Window(NamedTuple):
    """A range of a chat's entries, by seq and by ts; both ends are inclusive."""

    first: int
    last: int
    from_ts: int
    to_ts: int
    is_tail: bool = False  # True: entries after `last` may have been read; ignore them


class UnreadableSegment(NamedTuple):
    """A segment whose object cannot be read."""

    segment: ArchiveSegment
    is_missing: bool


class RangeEntries(NamedTuple):
    """Each tier's entries in a range. All seqs up to `stored` must be in the warm or cold tier.

    `known` is the chat's newest seq when its audit began. `rows` are the segments. `top` is the
    newest archived seq, which is read just before `rows`.
    """

    chat: str
    window: Window
    stored: int
    head: int
    known: int
    top: int
    hot: Mapping[int, Message]
    items: Sequence[CheckedItem]
    markers: Sequence[CheckedItem]
    rows: Sequence[ArchiveSegment]
    cold: Mapping[int, Message]
    broken: Sequence[UnreadableSegment]


def find_inconsistencies(entries: RangeEntries) -> list[RuleFinding]:
    return [
        *_check_items(entries),
        *_check_versions(entries),
        *_check_rows(entries),
        *_check_holes(entries),
        *_check_stored(entries),
    ]


def _check_items(entries: RangeEntries) -> Iterable[RuleFinding]:
    """Check that items are valid, that their seqs are in order, and that no seq has two items."""
    chat, window = entries.chat, entries.window
    times: dict[int, set[int]] = collections.defaultdict(set)
    for seq, entry in entries.cold.items():
        if entry.kind != LOST_KIND:
            times[seq].add(entry.ts)
    right: list[tuple[int, str]] = []
    marked = ((True, marker) for marker in entries.markers)
    for is_marker, item in [*((False, cold_item) for cold_item in entries.items), *marked]:
        location, message = f"messages: {chat} at {item.ts}", item.message
        if message is None:
            yield RuleFinding("item_unreadable", chat, 0, 0, location)
            continue
        if item.verdict == "wrong":
            yield RuleFinding("item_changed", chat, message.seq, message.seq, location)
        if message.kind != LOST_KIND:
            times[message.seq].add(item.ts)
        if item.verdict == "wrong" or is_marker:
            continue
        if message.seq < window.first:
            yield RuleFinding("repeated_item", chat, message.seq, message.seq, location)
        else:
            right.append((message.seq, location))
    ordered = find_longest_increasing_subsequence([seq for seq, _ in right])
    for number, (seq, location) in enumerate(right):
        if (seq > window.last and not window.is_tail) or (
            number not in ordered and len(times[seq]) < 2
        ):
            yield RuleFinding("out_of_order", chat, seq, seq, location)
    for seq, found in times.items():
        if len(found) > 1 and window.first <= seq <= window.last:
            location = f"at {', '.join(map(str, sorted(found)))}"
            yield RuleFinding("repeated_item", chat, seq, seq, location)


def _check_versions(entries: RangeEntries) -> Iterable[RuleFinding]:
    """Check that copies of an entry are the same message.

    Copies with the same `rev` must also be equal, as far as they can be compared.
    """
    items = {
        item.message.seq: item.message
        for item in entries.items
        if item.message is not None and item.verdict != "wrong"
    }
    for seq, message in items.items():
        archived = entries.cold.get(seq)
        # `_check_items` already reports a seq with two timestamps.
        if (
            archived is not None
            and archived.ts == message.ts
            and not _are_equivalent(message, archived)
        ):
            yield RuleFinding("tiers_differ", entries.chat, seq, seq, "item and segment")
    for seq, entry in entries.hot.items():
        below = items.get(seq) or entries.cold.get(seq)
        if below is not None and not _are_equivalent(entry, below):
            yield RuleFinding("tiers_differ", entries.chat, seq, seq, "log and stored entry")


def _are_equivalent(first: Message, other: Message) -> bool:
    if LOST_KIND in (first.kind, other.kind):
        # One copy is a placeholder for an entry that seemed lost, but arrived later.
        return True
    if first.ts != other.ts:
        return False
    if "-" not in (first.mid, other.mid) and first.mid != other.mid:
        return False
    if first.shredded or other.shredded:
        # The encryption key of one copy was deleted, so its body cannot be compared. The copy in
        # Redis may still have the body.
        return True
    return first.rev != other.rev or _to_comparable(first) == _to_comparable(other)


def _to_comparable(entry: Message) -> Message:
    """Return the part of an entry that all tiers store; of an expiring message, a tombstone."""
    return entry if entry.expires_at is None else build_tombstone(entry, entry.rev)


def _check_rows(entries: RangeEntries) -> Iterable[RuleFinding]:
    """Check that segments do not overlap, are readable, and do not end after `entries.top`."""
    chat = entries.chat
    overlapping = [pair for pair in pairwise(entries.rows) if pair[1].first <= pair[0].last]
    if overlapping:
        keys = ", ".join(dict.fromkeys(row.key for pair in overlapping for row in pair))
        first = min(after.first for _, after in overlapping)
        last = max(before.last for before, _ in overlapping)
        yield RuleFinding("overlap", chat, first, last, keys)
    for row, is_missing in entries.broken:
        kind = "object_missing" if is_missing else "object_changed"
        yield RuleFinding(kind, chat, row.first, row.last, row.key)
    for row in entries.rows:
        if row.last > entries.top:
            yield RuleFinding("manifest_top", chat, row.first, row.last, row.key)


def _check_holes(entries: RangeEntries) -> Iterable[RuleFinding]:
    first, last = entries.window.first, entries.window.last
    covered = [(row.first, row.last) for row in entries.rows]
    for low, high in iter_missing_ranges(first, min(last, entries.top), covered):
        yield RuleFinding("manifest_hole", entries.chat, low, high)
    seqs = {
        item.message.seq for item in [*entries.items, *entries.markers] if item.message is not None
    }
    # In the archived range, missing entries have been reported above, as `manifest_hole`.
    present = [(seq, seq) for seq in sorted({*seqs, *entries.cold})]
    archived = [(1, entries.top), *covered]
    missing = list(iter_missing_ranges(first, min(last, entries.stored), present + archived))
    for low, high in missing:
        yield from _classify_missing(entries, low, high)
    above = present + archived + [(seq, seq) for seq in entries.hot]
    begin = max(first, entries.stored + 1)
    for low, high in iter_missing_ranges(begin, min(last, entries.head), above):
        yield RuleFinding("log_missing", entries.chat, low, high)


def _check_stored(entries: RangeEntries) -> Iterable[RuleFinding]:
    """Check that Redis records the entries of the other tiers as stored.

    Entries that arrived during the audit are not checked. In a busy chat, some are always about to
    be recorded; to confirm each of them would take longer than new ones take to arrive.
    """
    items = [*entries.items, *entries.markers]
    seqs = {item.message.seq for item in items if item.message is not None} | {*entries.cold}
    begin = max(entries.window.first, entries.stored + 1)
    last = min(entries.window.last, entries.head, entries.known)
    absent = list(iter_missing_ranges(begin, last, [(seq, seq) for seq in sorted(seqs)]))
    for low, high in iter_missing_ranges(begin, last, absent):
        yield RuleFinding("stored_behind", entries.chat, low, high)


def _classify_missing(entries: RangeEntries, low: int, high: int) -> Iterable[RuleFinding]:
    """Report missing items, separately for lost entries and for entries that Redis still has."""
    in_log = [(seq, seq) for seq in entries.hot]
    lost = list(iter_missing_ranges(low, high, in_log))
    for start, end in lost:
        yield RuleFinding("item_missing", entries.chat, start, end)
    for start, end in iter_missing_ranges(low, high, lost):
        yield RuleFinding("item_only_in_log", entries.chat, start, end)
