"""Waits for stored messages: each ends once, by the watermark or by its timeout."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Overloaded, Unavailable
from chatserver.hot.chats.chat_log import StoredSeqs
from chatserver.service.messaging import stored_waits
from chatserver.service.messaging.stored_waits import StoredWaits
from tests.support.servers.processes import eventually

CHAT, OTHER = ChatId("c1"), ChatId("c2")
NEVER_S = 60.0
LOW_MAX = 100


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a low limit of waits."""
    monkeypatch.setattr(stored_waits, "WAITS_MAX", LOW_MAX)


class Callbacks(NamedTuple):
    """Records the callbacks."""

    stored: list[int]
    timed_out: list[int]

    def for_wait(self, number: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return the two callbacks of a wait."""
        return (
            functools.partial(self.stored.append, number),
            functools.partial(self.timed_out.append, number),
        )


async def test_stored_watermark_ends_all_waits_up_to_it() -> None:
    """A watermark covers every message before it; waits end in the order of the chat."""
    waits, callbacks = StoredWaits(NEVER_S), Callbacks([], [])
    for seq in (3, 1, 2, 5):
        assert waits.add(CHAT, Seq(seq), *callbacks.for_wait(seq))

    waits.complete(CHAT, StoredSeqs(Seq(3)))

    assert callbacks == ([1, 2, 3], [])
    waits.complete(CHAT, StoredSeqs(Seq(5)))
    assert callbacks == ([1, 2, 3, 5], [])


async def test_dead_letter_before_a_stored_message_is_not_acked() -> None:
    """Its wait times out, whatever is stored after it."""
    waits, callbacks = StoredWaits(0.05), Callbacks([], [])
    for seq in (1, 2, 3):
        waits.add(CHAT, Seq(seq), *callbacks.for_wait(seq))

    waits.complete(CHAT, StoredSeqs(Seq(3), frozenset({2})))

    assert (callbacks.stored, callbacks.timed_out) == ([1, 3], [])
    await eventually(lambda: callbacks.timed_out == [2], 20)


async def test_watermark_wait_for_a_dead_letter_ends_with_the_next_stored_message() -> None:
    """A device that waits for a seq learns that everything up to a later seq is stored."""
    waits, callbacks = StoredWaits(NEVER_S), Callbacks([], [])
    waits.add(CHAT, Seq(2), *callbacks.for_wait(2), is_watermark=True)

    waits.complete(CHAT, StoredSeqs(Seq(2), frozenset({2})))
    assert callbacks == ([], [])
    waits.complete(CHAT, StoredSeqs(Seq(3), frozenset({2})))

    assert callbacks == ([2], [])


async def test_slow_chat_does_not_delay_the_check_of_another() -> None:
    """Its Redis partition may hang until the deadline of calls."""
    callbacks, waits = Callbacks([], []), StoredWaits(NEVER_S, poll_s=0.01)

    class Log:
        """Hangs for one chat."""

        async def get_stored(self, chat: ChatId) -> StoredSeqs:
            if chat == OTHER:
                await asyncio.Event().wait()
            return StoredSeqs(Seq(9))

    waits.add(OTHER, Seq(1), *callbacks.for_wait(1))
    task = asyncio.create_task(waits.run(Log()))
    for seq in (5, 6):
        waits.add(CHAT, Seq(seq), *callbacks.for_wait(seq))
        await eventually(functools.partial(callbacks.stored.__contains__, seq))
    task.cancel()

    assert callbacks == ([5, 6], [])


async def test_stored_watermark_of_one_chat_does_not_end_waits_of_another() -> None:
    """Each chat has its own watermark."""
    waits, callbacks = StoredWaits(NEVER_S), Callbacks([], [])
    waits.add(CHAT, Seq(1), *callbacks.for_wait(1))

    waits.complete(OTHER, StoredSeqs(Seq(9)))

    assert callbacks == ([], [])


async def test_stored_late_or_repeated_watermark_does_nothing() -> None:
    """Watermarks may arrive twice and out of order."""
    waits, callbacks = StoredWaits(NEVER_S), Callbacks([], [])
    waits.add(CHAT, Seq(4), *callbacks.for_wait(4))

    for upto in (2, 4, 4, 1):
        waits.complete(CHAT, StoredSeqs(Seq(upto)))

    assert callbacks == ([4], [])


async def test_stored_wait_times_out_once() -> None:
    """The late `stored` position is ignored; other senders in the chat still wait."""
    waits, callbacks = StoredWaits(0.02), Callbacks([], [])
    waits.add(CHAT, Seq(1), *callbacks.for_wait(1))
    await eventually(lambda: callbacks.timed_out == [1], 20)
    waits.add(CHAT, Seq(2), *callbacks.for_wait(2))

    waits.complete(CHAT, StoredSeqs(Seq(2)))

    assert callbacks == ([2], [1])


async def test_stored_waits_are_bounded_and_ended_waits_make_room(low_limit: None) -> None:
    """Above the limit nothing is accepted and no callback is called."""
    waits, callbacks = StoredWaits(NEVER_S), Callbacks([], [])
    for number in range(LOW_MAX):
        assert waits.add(CHAT, Seq(1 + number % 2), *callbacks.for_wait(number))

    assert not waits.add(OTHER, Seq(1), *callbacks.for_wait(-1))
    waits.complete(CHAT, StoredSeqs(Seq(1)))
    assert waits.add(OTHER, Seq(1), *callbacks.for_wait(-2))

    waits.complete(OTHER, StoredSeqs(Seq(1)))
    waits.complete(CHAT, StoredSeqs(Seq(2)))
    assert len(callbacks.stored) == LOW_MAX + 1
    assert -1 not in callbacks.stored


async def test_stored_timeouts_make_room(low_limit: None) -> None:
    """A wait that timed out does not count."""
    waits, callbacks = StoredWaits(0.0), Callbacks([], [])
    for number in range(LOW_MAX):
        waits.add(CHAT, Seq(number), *callbacks.for_wait(number))

    await eventually(lambda: len(callbacks.timed_out) == LOW_MAX, 10)

    assert waits.add(CHAT, Seq(1), *callbacks.for_wait(-1))
    waits.complete(CHAT, StoredSeqs(Seq(1)))
    assert callbacks.stored == [-1]


async def test_stored_callback_may_add_a_wait() -> None:
    """A client that sends its next message on an ack does not disturb the others."""
    waits, callbacks = StoredWaits(NEVER_S), Callbacks([], [])
    stored_again = asyncio.Event()

    def send_next() -> None:
        waits.add(CHAT, Seq(9), stored_again.set, stored_again.set)

    waits.add(CHAT, Seq(1), send_next, send_next)
    waits.add(CHAT, Seq(2), *callbacks.for_wait(2))
    waits.complete(CHAT, StoredSeqs(Seq(2)))
    waits.complete(CHAT, StoredSeqs(Seq(9)))

    assert callbacks.stored == [2]
    assert stored_again.is_set()


async def test_another_epoch_ends_every_wait() -> None:
    """A seq of an old epoch may be another message: no client gets `stored`."""
    callbacks = Callbacks([], [])
    waits = StoredWaits(NEVER_S)
    for number in (5, 6):
        waits.add(CHAT, Seq(number), *callbacks.for_wait(number))

    waits.expire_all()
    waits.complete(CHAT, StoredSeqs(Seq(9)))

    assert (callbacks.stored, callbacks.timed_out) == ([], [5, 6])
    assert waits.add(CHAT, Seq(7), *callbacks.for_wait(7))


async def test_poll_finds_stored_messages_without_a_notification() -> None:
    """A notification may be lost, or go to the gateway that first accepted the message."""
    callbacks = Callbacks([], [])
    waits = StoredWaits(NEVER_S, poll_s=0.01)
    waits.add(CHAT, Seq(5), *callbacks.for_wait(5))

    class Log:
        """Reports the message as stored at the third read."""

        reads = 0

        async def get_stored(self, chat: ChatId) -> StoredSeqs:
            self.reads += 1
            if self.reads == 1:
                raise Unavailable("redis is down")
            return StoredSeqs(Seq(4 if self.reads == 2 else 5))

    log = Log()
    task = asyncio.create_task(waits.run(log))

    await eventually(lambda: callbacks.stored == [5])

    task.cancel()
    assert log.reads == 3


async def test_notification_is_checked_before_the_next_poll() -> None:
    """Only the chat of the notification is read."""
    callbacks, read = Callbacks([], []), list[ChatId]()
    waits = StoredWaits(NEVER_S, poll_s=NEVER_S)

    class Log:
        """Every message is stored."""

        async def get_stored(self, chat: ChatId) -> StoredSeqs:
            read.append(chat)
            return StoredSeqs(Seq(9))

    waits.add(CHAT, Seq(5), *callbacks.for_wait(5))
    waits.add(OTHER, Seq(6), *callbacks.for_wait(6))
    task = asyncio.create_task(waits.run(Log()))
    waits.schedule_check(CHAT)
    waits.schedule_check(ChatId("without waits"))
    await eventually(lambda: callbacks.stored == [5])
    task.cancel()

    assert read == [CHAT]


async def test_poll_pauses_while_nothing_waits_and_resumes_with_a_wait() -> None:
    """An idle process reads nothing; the first wait is polled like every other one."""
    callbacks = Callbacks([], [])
    waits = StoredWaits(NEVER_S, poll_s=0.01)

    class Log:
        """Every message is stored."""

        async def get_stored(self, chat: ChatId) -> StoredSeqs:
            return StoredSeqs(Seq(9))

    task = asyncio.create_task(waits.run(Log()))
    await asyncio.sleep(0)
    waits.add(CHAT, Seq(5), *callbacks.for_wait(5))

    await eventually(lambda: callbacks.stored == [5])

    waits.add(CHAT, Seq(6), *callbacks.for_wait(6))
    await eventually(lambda: callbacks.stored == [5, 6])
    task.cancel()


async def test_wait_returns_when_the_message_is_stored() -> None:
    """`wait` is the awaitable form of `add`."""
    waits = StoredWaits(NEVER_S)
    waiting = asyncio.ensure_future(waits.wait(CHAT, Seq(5)))
    await asyncio.sleep(0)

    waits.complete(CHAT, StoredSeqs(Seq(5)))

    await waiting


async def test_wait_raises_when_the_message_is_not_stored_in_time() -> None:
    """The outcome is unknown: the message may still be stored."""
    waits = StoredWaits(NEVER_S)
    waiting = asyncio.ensure_future(waits.wait(CHAT, Seq(5)))
    await asyncio.sleep(0)

    waits.expire_all()

    with pytest.raises(Unavailable, match="not stored in time"):
        await waiting


async def test_wait_beyond_the_maximum_is_refused(low_limit: None) -> None:
    """The caller gets an error instead of a wait."""
    waits = StoredWaits(NEVER_S)
    for seq in range(LOW_MAX):
        waits.add(CHAT, Seq(seq), lambda: None, lambda: None)

    with pytest.raises(Overloaded):
        await waits.wait(CHAT, Seq(1))
