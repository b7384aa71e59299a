"""The usage of a process is added to the totals exactly once, with any failures."""

from __future__ import annotations

import dataclasses

import pytest

from chatserver.errors import Unavailable
from chatserver.operations.cost.usage_recorder import UsageRecorder, record_usage
from chatserver.telemetry.dynamodb_usage import Part, UsageAccumulator
from tests.support.fake_clocks import FakeClock

NEW_YEARS_EVE = 1_798_761_599.0  # one second before the next year


@dataclasses.dataclass
class FakeTotals:
    """Records parts; each fault makes one call fail before or after it."""

    faults: list[str] = dataclasses.field(default_factory=list)
    parts: list[Part] = dataclasses.field(default_factory=list)

    async def add(self, part: Part) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault != "before":
            self.parts.append(part)
        if fault:
            raise Unavailable(fault)


def record_usage_units(usage: UsageAccumulator, units: float = 1.0) -> None:
    """Record some usage."""
    usage.record_units("persist", "messages", "write", units)


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_part_without_an_answer_is_repeated_unchanged(fault: str) -> None:
    """The totals recognize the part by its number; later usage is another part."""
    usage, totals, clock = UsageAccumulator(), FakeTotals([fault]), FakeClock(NEW_YEARS_EVE)
    recorder = UsageRecorder(usage, totals, clock)
    record_usage_units(usage)

    with pytest.raises(Unavailable):
        await recorder.flush()
    clock.advance(5.0)
    record_usage_units(usage, 2.0)
    await recorder.flush()

    parts = {part.number: part for part in totals.parts}
    assert [part.spending.units for _, part in sorted(parts.items())] == [
        {("persist", "messages", "write"): 1.0},
        {("persist", "messages", "write"): 2.0},
    ]
    assert [part.day for _, part in sorted(parts.items())] == ["2026-12-31", "2027-01-01"]
    assert len({part.process for part in totals.parts}) == 1


async def test_flush_without_usage_makes_no_call() -> None:
    totals = FakeTotals()

    await UsageRecorder(UsageAccumulator(), totals, FakeClock(NEW_YEARS_EVE)).flush()

    assert totals.parts == []


async def test_usage_before_the_end_of_a_process_is_recorded() -> None:
    """A process flushes its usage when it ends; a failed flush does not prevent the end."""
    usage, totals = UsageAccumulator(), FakeTotals()
    async with record_usage(usage, totals, FakeClock(NEW_YEARS_EVE)):
        record_usage_units(usage)
    async with record_usage(usage, FakeTotals(["before"]), FakeClock(NEW_YEARS_EVE)):
        record_usage_units(usage)

    assert [sum(part.spending.units.values()) for part in totals.parts] == [1.0]
