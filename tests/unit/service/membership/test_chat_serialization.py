"""Changes of one chat in a process: one after the other, and told together."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from typing import Any

from chatserver.domain.ids import ChatId
from chatserver.service.membership.chat_serialization import ChatSerializer

CHAT, OTHER = ChatId("g-1"), ChatId("g-2")


@dataclasses.dataclass
class Record:
    """A chat at a version."""

    version: int


class Teller:
    """Tells what it is given once it may, and keeps which versions those were."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.failures = 0
        self.may_go_on = asyncio.Event()

    async def try_to_tell(self, record: Any) -> bool:
        self.told.append(record.version)
        await self.may_go_on.wait()
        if self.failures:
            self.failures -= 1
            return False
        return True


async def tell_all(in_turn: ChatSerializer, teller: Teller, versions: list[int]) -> list[bool]:
    """Have versions told at once: the first is under way when the others come."""
    record: Any = Record
    queue = in_turn.join(CHAT)
    tasks = [asyncio.create_task(in_turn.tell(queue, record(v))) for v in versions]
    while not teller.told:
        await asyncio.sleep(0)
    teller.may_go_on.set()
    return list(await asyncio.gather(*tasks))


async def test_changes_that_come_while_one_is_told_are_told_by_one_more() -> None:
    """Five changes, two tellings: what is told takes in all that was made before."""
    teller = Teller()
    in_turn = ChatSerializer(teller.try_to_tell)

    outcomes = await tell_all(in_turn, teller, [1, 2, 3, 4, 5])

    assert (outcomes, teller.told) == ([True] * 5, [1, 5])


async def test_change_that_could_not_be_told_is_tried_by_the_next() -> None:
    """Who fails leaves its change to repair; who waited behind it tries again."""
    teller = Teller()
    teller.failures = 1
    in_turn = ChatSerializer(teller.try_to_tell)

    outcomes = await tell_all(in_turn, teller, [1, 2])

    assert (outcomes, teller.told) == ([False, True], [1, 2])


async def test_chats_wait_only_for_themselves_and_are_forgotten() -> None:
    """The queue of a chat is one while somebody holds it; of another chat it is another."""
    in_turn = ChatSerializer(Teller().try_to_tell)
    first, second = in_turn.join(CHAT), in_turn.join(OTHER)
    assert first is in_turn.join(CHAT)
    assert first is not second
    first.told = 7

    async with first.making:
        assert not second.making.locked()
    del first
    gc.collect()

    assert in_turn.join(CHAT).told == 0
