"""The usage of a process is added to the totals exactly once, with any failures."""

from __future__ import annotations

import dataclasses

import pytest

from chatserver.errors import Unavailable
from chatserver.operations.cost.recorder import UsageRecorder, record_usage
from chatserver.telemetry.dynamodb_usage import Part, UsageAccumulator


class Clock:
    """23:59:59 on the last day of a year, or some seconds later."""

    def __init__(self) -> None:
        self.later_s = 0.0

    def time(self) -> float:
        return 1_798_761_599.0 + self.later_s

    def monotonic(self) -> float:
        return self.later_s


@dataclasses.dataclass
class Account:
    """Takes parts; may fail before, or after."""

    fails: list[str] = dataclasses.field(default_factory=list)
    taken: list[Part] = dataclasses.field(default_factory=list)

    async def add(self, part: Part) -> None:
        fault = self.fails.pop(0) if self.fails else ""
        if fault != "before":
            self.taken.append(part)
        if fault:
            raise Unavailable(fault)


def spend(usage: UsageAccumulator, units: float = 1.0) -> None:
    """Spend on something."""
    usage.record_units("persist", "messages", "write", units)


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_part_whose_answer_is_lost_is_given_again_as_it_was(fault: str) -> None:
    """The totals recognize the part by its number; later usage is another part."""
    usage, account, clock = UsageAccumulator(), Account([fault]), Clock()
    accounting = UsageRecorder(usage, account, clock)
    spend(usage)

    with pytest.raises(Unavailable):
        await accounting.flush()
    clock.later_s = 5.0
    spend(usage, 2.0)
    await accounting.flush()

    parts = {part.number: part for part in account.taken}
    assert [part.spending.units for _, part in sorted(parts.items())] == [
        {("persist", "messages", "write"): 1.0},
        {("persist", "messages", "write"): 2.0},
    ]
    assert [part.day for _, part in sorted(parts.items())] == ["2026-12-31", "2027-01-01"]
    assert len({part.process for part in account.taken}) == 1


async def test_nothing_spent_is_nothing_told() -> None:
    """An idle process does not call."""
    account = Account()

    await UsageRecorder(UsageAccumulator(), account, Clock()).flush()

    assert account.taken == []


async def test_last_seconds_of_a_process_are_accounted_for() -> None:
    """It flushes when it ends; and ends, too, when that fails."""
    usage, account = UsageAccumulator(), Account()
    async with record_usage(usage, account, Clock()):
        spend(usage)
    async with record_usage(usage, Account(["before"]), Clock()):
        spend(usage)

    assert [sum(part.spending.units.values()) for part in account.taken] == [1.0]
