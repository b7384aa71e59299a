"""Waiting to be stored: each wait ends once, by the watermark or by its time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Overloaded, Unavailable
from chatserver.service.messaging import stored_acks
from chatserver.service.messaging.stored_acks import StoredWaits
from tests.support.servers.processes import eventually

CHAT, OTHER = ChatId("c1"), ChatId("c2")
NEVER_S = 60.0
FEW = 100


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is low enough to reach it often."""
    monkeypatch.setattr(stored_acks, "WAITS_MAX", FEW)


class Heard(NamedTuple):
    """Records the callbacks."""

    stored: list[int]
    too_late: list[int]

    def of(self, number: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """The two callbacks of a wait."""
        return (
            functools.partial(self.stored.append, number),
            functools.partial(self.too_late.append, number),
        )


async def test_stored_watermark_ends_all_waits_up_to_it() -> None:
    """A watermark stands for every message before it, in the order in which they waited."""
    waits, heard = StoredWaits(NEVER_S), Heard([], [])
    for seq in (3, 1, 2, 5):
        assert waits.add(CHAT, Seq(seq), *heard.of(seq))

    waits.reached(CHAT, Seq(3))

    assert heard == ([3, 1, 2], [])
    waits.reached(CHAT, Seq(5))
    assert heard == ([3, 1, 2, 5], [])


async def test_stored_watermark_of_one_chat_says_nothing_of_another() -> None:
    """Each chat has its own."""
    waits, heard = StoredWaits(NEVER_S), Heard([], [])
    waits.add(CHAT, Seq(1), *heard.of(1))

    waits.reached(OTHER, Seq(9))

    assert heard == ([], [])


async def test_stored_late_or_repeated_watermark_does_nothing() -> None:
    """Watermarks may come twice and out of order."""
    waits, heard = StoredWaits(NEVER_S), Heard([], [])
    waits.add(CHAT, Seq(4), *heard.of(4))

    for upto in (2, 4, 4, 1):
        waits.reached(CHAT, Seq(upto))

    assert heard == ([4], [])


async def test_stored_wait_that_takes_too_long_is_told_once() -> None:
    """The late `stored` position is ignored; other senders in the chat still wait."""
    waits, heard = StoredWaits(0.02), Heard([], [])
    waits.add(CHAT, Seq(1), *heard.of(1))
    await eventually(lambda: heard.too_late == [1], 20)
    waits.add(CHAT, Seq(2), *heard.of(2))

    waits.reached(CHAT, Seq(2))

    assert heard == ([2], [1])


async def test_stored_waits_have_a_bound_and_give_room_back(few: None) -> None:
    """Above the limit nothing is accepted and no callback is called; ended waits make room."""
    waits, heard = StoredWaits(NEVER_S), Heard([], [])
    for number in range(FEW):
        assert waits.add(CHAT, Seq(1 + number % 2), *heard.of(number))

    assert not waits.add(OTHER, Seq(1), *heard.of(-1))
    waits.reached(CHAT, Seq(1))
    assert waits.add(OTHER, Seq(1), *heard.of(-2))

    waits.reached(OTHER, Seq(1))
    waits.reached(CHAT, Seq(2))
    assert len(heard.stored) == FEW + 1
    assert -1 not in heard.stored


async def test_stored_timeouts_give_room_back(few: None) -> None:
    """A wait that timed out does not count."""
    waits, heard = StoredWaits(0.0), Heard([], [])
    for number in range(FEW):
        waits.add(CHAT, Seq(number), *heard.of(number))

    await eventually(lambda: len(heard.too_late) == FEW, 10)

    assert waits.add(CHAT, Seq(1), *heard.of(-1))
    waits.reached(CHAT, Seq(1))
    assert heard.stored == [-1]


async def test_stored_callback_may_wait_again() -> None:
    """A client that sends its next message on an ack does not disturb the others."""
    waits, heard = StoredWaits(NEVER_S), Heard([], [])
    again = asyncio.Event()

    def send_next() -> None:
        waits.add(CHAT, Seq(9), again.set, again.set)

    waits.add(CHAT, Seq(1), send_next, send_next)
    waits.add(CHAT, Seq(2), *heard.of(2))
    waits.reached(CHAT, Seq(2))
    waits.reached(CHAT, Seq(9))

    assert heard.stored == [2]
    assert again.is_set()


async def test_another_epoch_ends_every_wait() -> None:
    """A seq of an old epoch may be another message: no client gets `stored`."""
    heard = Heard([], [])
    waits = StoredWaits(NEVER_S)
    for number in (5, 6):
        waits.add(CHAT, Seq(number), *heard.of(number))

    waits.expire_all()
    waits.reached(CHAT, Seq(9))

    assert (heard.stored, heard.too_late) == ([], [5, 6])
    assert waits.add(CHAT, Seq(7), *heard.of(7))


async def test_poll_finds_what_no_notification_reported() -> None:
    """A notification may be lost, or go to the gateway that first accepted the message."""
    heard = Heard([], [])
    waits = StoredWaits(NEVER_S, poll_s=0.01)
    waits.add(CHAT, Seq(5), *heard.of(5))

    class Log:
        """Answers once it is asked a third time."""

        asked = 0

        async def get_stored(self, chat: ChatId) -> Seq:
            self.asked += 1
            if self.asked == 1:
                raise Unavailable("redis is away")
            return Seq(4 if self.asked == 2 else 5)

    log = Log()
    task = asyncio.create_task(waits.run(log))

    await eventually(lambda: heard.stored == [5])

    task.cancel()
    assert log.asked == 3


async def test_poll_pauses_while_nothing_waits_and_resumes_with_a_wait() -> None:
    """An idle process reads nothing; the first wait is polled like every other one."""
    heard = Heard([], [])
    waits = StoredWaits(NEVER_S, poll_s=0.01)

    class Log:
        """Has everything."""

        async def get_stored(self, chat: ChatId) -> Seq:
            return Seq(9)

    task = asyncio.create_task(waits.run(Log()))
    await asyncio.sleep(0)
    waits.add(CHAT, Seq(5), *heard.of(5))

    await eventually(lambda: heard.stored == [5])

    waits.add(CHAT, Seq(6), *heard.of(6))
    await eventually(lambda: heard.stored == [5, 6])
    task.cancel()


async def test_wait_returns_when_the_message_is_stored() -> None:
    """The awaitable form of `add`."""
    waits = StoredWaits(NEVER_S)
    waiting = asyncio.ensure_future(waits.wait(CHAT, Seq(5)))
    await asyncio.sleep(0)

    waits.reached(CHAT, Seq(5))

    await waiting


async def test_wait_raises_when_the_message_is_not_stored_in_time() -> None:
    """The outcome is unknown: the message may still be stored."""
    waits = StoredWaits(NEVER_S)
    waiting = asyncio.ensure_future(waits.wait(CHAT, Seq(5)))
    await asyncio.sleep(0)

    waits.expire_all()

    with pytest.raises(Unavailable, match="not stored in time"):
        await waiting


async def test_wait_beyond_the_maximum_is_refused(few: None) -> None:
    """Nothing is left to wait for."""
    waits = StoredWaits(NEVER_S)
    for seq in range(FEW):
        waits.add(CHAT, Seq(seq), lambda: None, lambda: None)

    with pytest.raises(Overloaded):
        await waits.wait(CHAT, Seq(1))
