"""Sends with `durability: "stored"`: their acks wait for the persist worker.

The worker notifies the gateway that a chat has newly stored entries. `run` reads from Redis which
seqs are stored, because earlier entries can be dead letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import ChatError, Overloaded, Unavailable
from chatserver.hot.chats.chat_log import ChatLog, StoredSeqs

WAITS_MAX = 50_000
POLL_S = 0.5
STORED_POLL_S = 0.1  # the same in workers and the API, which get no notifications
CHATS_PER_POLL_MAX = 500
CHECKS_MAX = 1_000  # at the same time; more than a poll starts, so that notifications get some


@dataclasses.dataclass(slots=True, eq=False)
class _Wait:
    seq: Seq
    on_stored: Callable[[], None]
    on_timeout: Callable[[], None]
    timer: asyncio.TimerHandle
    is_watermark: bool

    def is_complete(self, stored: StoredSeqs) -> bool:
        if self.is_watermark:
            return self.seq <= stored.top
        return self.seq <= stored.upto and self.seq not in stored.dead


NOT_STORED = "not stored in time; retry with the same ref to get the outcome"
STORED_TIMEOUT_S = 6.0  # maximum time that an ack waits for DynamoDB


class StoredWaits:
    """Runs a callback when a message has reached the warm tier, or after a timeout.

    Bounded: at most `WAITS_MAX` sends wait.
    """

    def __init__(self, timeout_s: float, poll_s: float = POLL_S) -> None:
        self._timeout_s = timeout_s
        self._poll_s = poll_s
        self._waits: dict[ChatId, list[_Wait]] = {}
        self._count = 0
        self._added = asyncio.Event()
        self._scheduled: dict[ChatId, None] = {}
        self._wakeup = asyncio.Event()

    def add(
        self,
        chat: ChatId,
        seq: Seq,
        on_stored: Callable[[], None],
        on_timeout: Callable[[], None],
        *,
        is_watermark: bool = False,
    ) -> bool:
        """Run `on_stored` once message `seq` is stored, or `on_timeout` after the timeout.

        With `is_watermark`, a stored message after `seq` is enough, even if `seq` is a dead letter.

        Return False, and run neither, if too many sends are waiting.
        """
        if self._count >= WAITS_MAX:
            return False

        def expire() -> None:
            self._waits[chat].remove(wait)
            self._decrease_count(chat, 1)
            on_timeout()

        timer = asyncio.get_running_loop().call_later(self._timeout_s, expire)
        wait = _Wait(seq, on_stored, on_timeout, timer, is_watermark)
        self._waits.setdefault(chat, []).append(wait)
        self._count += 1
        self._added.set()
        return True

    async def wait(self, chat: ChatId, seq: Seq) -> None:
        """Wait until message `seq` has reached the warm tier.

        Raises:
            Overloaded: too many sends are waiting.
            Unavailable: the message was not stored within the timeout, or Redis has lost data.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_stored() -> None:
            if not stored.done():
                stored.set_result(None)

        def on_timeout() -> None:
            if not stored.done():
                stored.set_exception(Unavailable(NOT_STORED))

        if not self.add(chat, seq, on_stored, on_timeout):
            raise Overloaded("too many sends are waiting to be stored; try again")
        await stored

    def schedule_check(self, chat: ChatId) -> None:
        """Make `run` check a chat soon, because it has newly stored messages."""
        if chat in self._waits:
            self._scheduled[chat] = None
            self._wakeup.set()

    def complete(self, chat: ChatId, stored: StoredSeqs) -> None:
        """Complete the waits for messages that are now in the warm tier."""
        waits = self._waits.get(chat)
        if waits is None:
            return
        done = {wait for wait in waits if wait.is_complete(stored)}
        waits[:] = [wait for wait in waits if wait not in done]
        self._decrease_count(chat, len(done))
        for wait in sorted(done, key=lambda wait: wait.seq):
            wait.timer.cancel()
            wait.on_stored()

    def expire_all(self) -> None:
        """Time out all waits. Call this after an epoch change: lost seqs can be assigned again."""
        waits, self._waits, self._count = self._waits, {}, 0
        for wait in itertools.chain.from_iterable(waits.values()):
            wait.timer.cancel()
            wait.on_timeout()

    async def run(self, log: ChatLog) -> None:
        """Until cancelled, check the chats of notifications, and poll all chats with waits.

        Polling is needed if a notification from the worker is lost, if a send is retried on another
        gateway, and in processes without a gateway stream.
        """
        now = asyncio.get_running_loop().time
        poll_at = now() + self._poll_s
        # One check per chat at a time: a slow Redis partition does not delay the other chats.
        checks: dict[ChatId, asyncio.Task[None]] = {}

        def on_done(chat: ChatId, _: asyncio.Task[None]) -> None:
            del checks[chat]
            if self._scheduled:
                self._wakeup.set()

        try:
            while True:
                if not self._waits:
                    self._added.clear()
                    await self._added.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(poll_at):
                        await self._wakeup.wait()
                self._wakeup.clear()
                if now() >= poll_at:
                    poll_at = now() + self._poll_s
                    for chat in list(self._waits)[:CHATS_PER_POLL_MAX]:
                        self._waits[chat] = self._waits.pop(chat)  # last in the next round
                        self._scheduled[chat] = None
                self._scheduled = {chat: None for chat in self._scheduled if chat in self._waits}
                due = [chat for chat in self._scheduled if chat not in checks]
                for chat in due[: CHECKS_MAX - len(checks)]:
                    del self._scheduled[chat]
                    checks[chat] = asyncio.create_task(self.check(chat, log), name="stored-check")
                    checks[chat].add_done_callback(functools.partial(on_done, chat))
        finally:
            for task in checks.values():
                task.cancel()

    async def check(self, chat: ChatId, log: ChatLog) -> None:
        """Read which of the chat's messages are stored, and complete the waits for them.

        If Redis does not respond, the waits continue, and `run` tries again.
        """
        with contextlib.suppress(ChatError):
            self.complete(chat, await log.get_stored(chat))

    def _decrease_count(self, chat: ChatId, count: int) -> None:
        self._count -= count
        if not self._waits[chat]:
            del self._waits[chat]
