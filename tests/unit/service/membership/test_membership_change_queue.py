"""Membership changes of one chat in a process: serialized, and propagated together."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from typing import Any

from chatserver.domain.ids import ChatId
from chatserver.service.membership.membership_change_queue import MembershipChangeQueue

CHAT, OTHER = ChatId("g-1"), ChatId("g-2")


@dataclasses.dataclass
class Record:
    """A chat at a version."""

    version: int


class Propagation:
    """A fake propagation that waits for the test, and records the delivered versions."""

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self.failures = 0
        self.may_continue = asyncio.Event()

    async def try_deliver(self, record: Any) -> bool:
        self.delivered.append(record.version)
        await self.may_continue.wait()
        if self.failures:
            self.failures -= 1
            return False
        return True


async def propagate_all(
    serializer: MembershipChangeQueue, propagation: Propagation, versions: list[int]
) -> list[bool]:
    """Propagate versions at once: the first is in progress when the others arrive."""
    record: Any = Record
    queue = serializer.join(CHAT)
    tasks = [asyncio.create_task(serializer.propagate(queue, record(v))) for v in versions]
    while not propagation.delivered:
        await asyncio.sleep(0)
    propagation.may_continue.set()
    return list(await asyncio.gather(*tasks))


async def test_changes_that_arrive_during_a_propagation_share_the_next_one() -> None:
    """Five changes, two propagations: each includes all earlier changes."""
    propagation = Propagation()
    serializer = MembershipChangeQueue(propagation.try_deliver)

    outcomes = await propagate_all(serializer, propagation, [1, 2, 3, 4, 5])

    assert (outcomes, propagation.delivered) == ([True] * 5, [1, 5])


async def test_failed_propagation_is_repeated_by_the_next_change() -> None:
    """Repair handles the failed change; the next change delivers both."""
    propagation = Propagation()
    propagation.failures = 1
    serializer = MembershipChangeQueue(propagation.try_deliver)

    outcomes = await propagate_all(serializer, propagation, [1, 2])

    assert (outcomes, propagation.delivered) == ([False, True], [1, 2])


async def test_chats_have_separate_queues_that_are_dropped_when_unused() -> None:
    """A chat has one queue while it is referenced; another chat has another."""
    serializer = MembershipChangeQueue(Propagation().try_deliver)
    first, second = serializer.join(CHAT), serializer.join(OTHER)
    assert first is serializer.join(CHAT)
    assert first is not second
    first.propagated = 7

    async with first.committing:
        assert not second.committing.locked()
    del first
    gc.collect()

    assert serializer.join(CHAT).propagated == 0
