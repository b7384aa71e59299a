"""Validation of a client's cursor: current, outdated, or from another epoch (promise P4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Epoch, Seq
from chatserver.domain.inbox_cursors import Coverage, judge_cursor

HERE, BEFORE = Epoch("E2"), Epoch("E1")


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_judge_cursor_is_current_only_if_all_after_it_can_be_read(
    seq: int, head: int, held: int, is_same_epoch: bool
) -> None:
    """What is not current is told apart: another life of the server, or too long away."""
    first = max(1, head - held + 1)

    coverage = judge_cursor(
        HERE if is_same_epoch else BEFORE,
        Seq(seq),
        inbox_epoch=HERE,
        inbox_first=Seq(first),
        inbox_head=Seq(head),
    )

    if not is_same_epoch or seq > head:
        assert coverage is Coverage.RESET
    else:
        missed = set(range(seq + 1, head + 1))
        is_held = missed <= set(range(first, head + 1))
        assert coverage is (Coverage.CURRENT if is_held else Coverage.TOO_LONG)


def test_judge_cursor_of_empty_inbox_at_its_head_is_current() -> None:
    """A device that has everything is current, though the inbox holds nothing."""
    coverage = judge_cursor(HERE, Seq(7), inbox_epoch=HERE, inbox_first=Seq(8), inbox_head=Seq(7))

    assert coverage is Coverage.CURRENT
