"""Cursors: a device sees each event once, in order, whatever reaches it in between (promise P4)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Epoch, Seq
from chatserver.domain.inbox_cursors import Coverage, DeviceCursor, Verdict, judge_cursor

HERE, BEFORE = Epoch("E2"), Epoch("E1")


@dataclasses.dataclass
class Device:
    """A session as it uses its cursor: pushes are offered, gaps are read from the inbox."""

    cursor: DeviceCursor
    sent: list[int] = dataclasses.field(default_factory=list)

    def push(self, epoch: Epoch, seq: int) -> None:
        """An event arrives."""
        if self.cursor.offer(epoch, Seq(seq)) is Verdict.SEND:
            self.sent.append(seq)

    def read(self, inbox_head: int, limit: int) -> None:
        """A page of the inbox arrives."""
        for seq in range(self.cursor.seq + 1, min(inbox_head, self.cursor.seq + limit) + 1):
            self.push(HERE, seq)


pushes = st.tuples(st.just("push"), st.integers(0, 40))
strangers = st.tuples(st.just("other epoch"), st.integers(0, 40))
reads = st.tuples(st.just("read"), st.integers(1, 5))


@given(st.integers(0, 10), st.lists(st.one_of(pushes, pushes, strangers, reads), max_size=60))
def test_device_cursor_any_interleaving_sends_each_event_once_in_order(
    start: int, steps: list[tuple[str, int]]
) -> None:
    """Duplicates, gaps, late pushes and inbox pages in any order give start + 1, start + 2 …"""
    device = Device(DeviceCursor(HERE, Seq(start)))
    newest = start
    for step, number in steps:
        if step == "push":
            newest = max(newest, number)
            device.push(HERE, number)
        elif step == "other epoch":
            device.push(BEFORE, number)
        else:
            device.read(newest, number)
        assert device.cursor.seq <= device.cursor.head <= newest
        assert device.sent == list(range(start + 1, device.cursor.seq + 1))

    while device.cursor.is_behind:
        device.read(newest, 3)

    assert device.sent == list(range(start + 1, newest + 1))


@given(st.permutations(range(1, 13)))
def test_device_cursor_pushes_in_any_order_lose_nothing(order: list[int]) -> None:
    """Whatever order pushes arrive in, what they could not send is known to be missing."""
    device = Device(DeviceCursor(HERE, Seq(0)))

    for seq in order:
        device.push(HERE, seq)
    is_behind, sent_before = device.cursor.is_behind, len(device.sent)
    device.read(12, 12)

    assert is_behind == (sent_before < 12)
    assert device.sent == list(range(1, 13))


def test_device_cursor_event_of_another_epoch_is_a_gap_and_moves_nothing() -> None:
    """A seq means nothing outside its epoch."""
    cursor = DeviceCursor(HERE, Seq(4))

    assert cursor.offer(BEFORE, Seq(5)) is Verdict.GAP
    assert (cursor.seq, cursor.head, cursor.is_behind) == (4, 4, False)


@pytest.mark.parametrize(
    ("seq", "verdict", "head"),
    [
        (5, Verdict.SEND, 5),
        (4, Verdict.DROP, 4),
        (1, Verdict.DROP, 4),
        (6, Verdict.GAP, 6),
        (99, Verdict.GAP, 99),
    ],
)
def test_device_cursor_offer_answers_by_the_next_seq(seq: int, verdict: Verdict, head: int) -> None:
    """Only the very next event is sent."""
    cursor = DeviceCursor(HERE, Seq(4))

    assert cursor.offer(HERE, Seq(seq)) is verdict
    assert cursor.head == head


def test_device_cursor_that_starts_behind_knows_it() -> None:
    """A device that comes back is behind until it was sent what it missed."""
    cursor = DeviceCursor(HERE, Seq(4), head=Seq(6))

    assert cursor.is_behind
    cursor.offer(HERE, Seq(5))
    assert cursor.is_behind
    cursor.offer(HERE, Seq(6))
    assert not cursor.is_behind


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
