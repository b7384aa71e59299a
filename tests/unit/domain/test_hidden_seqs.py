"""Hidden seqs of a user: single seqs, and all seqs up to a cleared one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.message_change_types import HiddenSeqs


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_hidden_seqs_contain_each_seq_and_all_up_to_the_highest_clear(
    single: set[int], cleared: set[int]
) -> None:
    """Of several cleared positions, the highest is used."""
    hidden = HiddenSeqs([*single, *(-seq for seq in cleared)])

    upto = max(cleared, default=0)
    assert {seq for seq in range(-31, 32) if seq in hidden and seq > 0} == single | set(
        range(1, upto + 1)
    )
    assert sorted(hidden.single) == sorted(seq for seq in single if seq > upto)
    assert bool(hidden) == bool(single or cleared)
    assert hidden == {*single, *(-seq for seq in cleared)}
