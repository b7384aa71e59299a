"""Merged pages of index partitions."""

from __future__ import annotations

import pytest

from chatserver.features.search.model import Hit, HitCursor, HitPage, Order
from chatserver.features.search.service import merge

# Chats and seqs of an index partition, in the order of its page; all messages have the same ts.
SAME_TS = [("g-b", 9), ("g-c", 4), ("g-a", 7)]


def make_page(places: list[tuple[str, int]], start: int) -> HitPage:
    """Return the part of a page after `start` hits."""
    hits = [Hit(chat, seq, 1_000) for chat, seq in places]
    cursors = [HitCursor(1_000, number + 1) for number in range(len(hits))]
    return HitPage(hits[start:], cursors[start:], None)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("order", list(Order))
def test_hits_with_the_same_ts_are_on_one_page_each(order: Order, limit: int) -> None:
    """The next page begins after the last hit in the order of the partition."""
    pages, start, found = {0: SAME_TS, 1: SAME_TS[::-1]}, {0: 0, 1: 0}, list[tuple[int, str]]()

    while any(start[partition] < len(places) for partition, places in pages.items()):
        results = {n: make_page(places, start[n]) for n, places in pages.items()}
        best, after = merge(results, order, limit)
        found += [(candidate.partition, candidate.hit.chat) for candidate in best]
        for partition, cursor in after.items():
            start[partition] = len(SAME_TS) if cursor is None else cursor.offset

    assert sorted(found) == [(n, chat) for n in (0, 1) for chat in ("g-a", "g-b", "g-c")]
