"""Retries of optimistic writes."""

from __future__ import annotations

import pytest

from chatserver.errors import ChatError, LostRace, Unavailable
from chatserver.warm.dynamo.client import ConditionFailed
from chatserver.warm.dynamo.optimistic_writes import retry_lost_races

EXHAUSTED = Unavailable("too many concurrent changes; try again")


class Write:
    """Loses the first races, each with one of `errors`."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.attempts = 0

    async def __call__(self) -> str:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return "written"


async def test_lost_races_are_retried() -> None:
    """The next attempt reads again and writes."""
    write = Write(ConditionFailed("no", []), ConditionFailed("no", []))

    assert await retry_lost_races(write, EXHAUSTED, attempts_max=3) == "written"
    assert write.attempts == 3


async def test_error_is_raised_after_the_last_attempt() -> None:
    """Its cause is the last race."""
    lost = ConditionFailed("no", [])
    write = Write(lost, lost, lost)

    with pytest.raises(Unavailable) as caught:
        await retry_lost_races(write, EXHAUSTED, attempts_max=2)

    assert write.attempts == 2
    assert (caught.value, caught.value.__cause__) == (EXHAUSTED, lost)


@pytest.mark.parametrize("error", [Unavailable("down"), LostRace("exhausted")])
async def test_other_errors_are_not_retried(error: ChatError) -> None:
    """The client has retried transport errors, and an inner loop its own races."""
    write = Write(error)

    with pytest.raises(type(error), match=error.message):
        await retry_lost_races(write, EXHAUSTED, attempts_max=3)

    assert write.attempts == 1
