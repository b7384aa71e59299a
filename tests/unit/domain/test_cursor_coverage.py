"""Validation of a client's cursor: current, outdated, or from another epoch (guarantee P4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.cursor_coverage import Coverage, compare_cursor
from chatserver.domain.ids import Epoch, Seq

CURRENT_EPOCH, OLD_EPOCH = Epoch("E2"), Epoch("E1")


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_cursor_is_current_only_if_all_later_events_can_be_read(
    seq: int, head: int, kept: int, is_same_epoch: bool
) -> None:
    """Otherwise, the result is RESET for another epoch and TOO_LONG for missing events."""
    first = max(1, head - kept + 1)

    coverage = compare_cursor(
        CURRENT_EPOCH if is_same_epoch else OLD_EPOCH,
        Seq(seq),
        inbox_epoch=CURRENT_EPOCH,
        inbox_first=Seq(first),
        inbox_head=Seq(head),
    )

    if not is_same_epoch or seq > head:
        assert coverage is Coverage.RESET
    else:
        missed = set(range(seq + 1, head + 1))
        is_kept = missed <= set(range(first, head + 1))
        assert coverage is (Coverage.CURRENT if is_kept else Coverage.TOO_LONG)


def test_cursor_at_the_head_of_an_empty_inbox_is_current() -> None:
    """A device that has all events is current, even if the inbox has none."""
    coverage = compare_cursor(
        CURRENT_EPOCH, Seq(7), inbox_epoch=CURRENT_EPOCH, inbox_first=Seq(8), inbox_head=Seq(7)
    )

    assert coverage is Coverage.CURRENT
