"""Fault schedules are determined by their seeds."""

from __future__ import annotations

from tests.chaos.nemesis import FAULTS
from tests.chaos.script import write_script


def test_script_with_the_same_seed_is_equal() -> None:
    """A failed run can be repeated with its seed."""
    assert write_script(7, set(FAULTS)) == write_script(7, set(FAULTS))
    assert write_script(7, set(FAULTS)) != write_script(8, set(FAULTS))


def test_scripts_have_every_kind_of_fault() -> None:
    """Fifty seeds leave no kind of fault out; without a kind, none has it."""
    scripts = [write_script(seed, set(FAULTS)) for seed in range(50)]
    without = [write_script(seed, set(FAULTS) - {"flush_redis"}) for seed in range(50)]

    assert {action.name for script in scripts for action in script} >= set(FAULTS)
    assert "flush_redis" not in {action.name for script in without for action in script}
