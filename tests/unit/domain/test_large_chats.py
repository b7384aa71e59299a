"""Chats that become large or small, and the entries that belong in inboxes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Seq
from chatserver.domain.membership_rules import is_large_after
from tests.unit.service.builders import ALICE, BOB, audience_of


@pytest.mark.parametrize(
    ("count", "was_large", "expected"),
    [(5, False, False), (6, False, True), (5, True, True), (4, True, True), (3, True, False)],
)
def test_chat_is_large_above_the_limit_until_well_below_it(
    count: int, was_large: bool, expected: bool
) -> None:
    """A member who joins and leaves at the limit does not change it each time."""
    assert is_large_after(count, 5, was_large=was_large) is expected


@given(st.lists(st.integers(1, 30), unique=True, max_size=5), st.booleans(), st.data())
def test_inbox_spans_have_each_entry_written_while_the_chat_was_small(
    seqs: list[int], was_large: bool, data: st.DataObject
) -> None:
    """Each entry appears once and in order, after any number of transitions."""
    transitions, is_large = [], was_large
    for seq in sorted(seqs):
        is_large = not is_large
        transitions.append(seq if is_large else -seq)
    after = data.draw(st.integers(0, 31))
    upto = data.draw(st.integers(after, 32))
    audience = dataclasses.replace(
        audience_of(ALICE, BOB, is_large=is_large), transitions=tuple(transitions)
    )

    spans = audience.inbox_spans(Seq(after), Seq(upto))

    def is_large_at(seq: int) -> bool:
        before = [each for each in transitions if abs(each) < seq]
        return before[-1] > 0 if before else was_large

    found = [seq for first, last in spans for seq in range(first + 1, last + 1)]
    assert found == [seq for seq in range(after + 1, upto + 1) if not is_large_at(seq)]


@pytest.mark.parametrize(("done", "expected"), [(7, True), (8, False)])
def test_transition_lasts_until_all_earlier_entries_are_delivered(
    done: int, expected: bool
) -> None:
    """During a transition, notifications also deliver the earlier entries."""
    audience = dataclasses.replace(
        audience_of(ALICE, BOB, is_large=True, done=done), transitions=(8,)
    )

    assert audience.is_in_transition is expected
