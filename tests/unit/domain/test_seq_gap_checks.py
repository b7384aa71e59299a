"""Checks of a chat's history, as used by the audit, the load tool and the chaos tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.seq_gap_checks import (
    is_contiguous,
    iter_missing_ranges,
    iter_not_ascending,
    iter_repeats,
    list_missing_seqs,
)

seqs_of_a_chat = st.lists(st.integers(1, 30), max_size=40)


@pytest.mark.parametrize(
    ("seqs", "expected"),
    [([], True), ([7], True), ([7, 8, 9], True), ([7, 9], False), ([7, 7], False), ([8, 7], False)],
)
def test_contiguous_seqs_have_no_gap_repeat_or_step_back(seqs: list[int], expected: bool) -> None:
    """A page may start anywhere, but each seq follows the one before."""
    assert is_contiguous(seqs) is expected


@given(seqs_of_a_chat)
def test_missing_seqs_complete_a_history_from_one(seqs: list[int]) -> None:
    """Present and missing seqs together are 1..N, and no seq is both."""
    missing = list_missing_seqs(seqs)

    assert sorted({*seqs, *missing}) == list(range(1, max(seqs, default=0) + 1))
    assert not set(seqs) & set(missing)


def test_missing_ranges_are_the_gaps_between_overlapping_ranges() -> None:
    """Ranges after the end are ignored; uncovered seqs at the end are missing."""
    assert list(iter_missing_ranges(1, 10, [(2, 5), (4, 6), (12, 14)])) == [(1, 1), (7, 10)]
    assert list(iter_missing_ranges(1, 3, [(0, 9)])) == []


@given(seqs_of_a_chat)
def test_iter_repeats_yields_every_occurrence_after_the_first(seqs: list[int]) -> None:
    """Three equal values are two repetitions."""
    assert len(list(iter_repeats(seqs))) == len(seqs) - len(set(seqs))


def test_not_ascending_finds_equal_and_lower_values() -> None:
    """Timestamps of one chat always increase."""
    assert list(iter_not_ascending([1, 2, 2, 5, 4, 6])) == [2, 4]
