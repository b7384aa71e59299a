"""Sends with `durability: "stored"`, which wait for the persist worker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from typing import Protocol

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import ChatError

WAITS_MAX = 50_000
LOOK_S = 0.5
LOOKS_MAX = 500  # chats checked per round


class StoredLog(Protocol):
    """Reads how far chats are stored."""

    async def get_stored(self, chat: ChatId) -> Seq: ...


@dataclasses.dataclass(slots=True, eq=False)
class _Wait:
    seq: Seq
    on_stored: Callable[[], None]
    on_timeout: Callable[[], None]
    timer: asyncio.TimerHandle


STORED_TIMEOUT_S = 6.0  # how long an ack of a send to be stored waits for DynamoDB


class StoredWaits:
    """Calls back when a message is in the warm tier, or when the timeout has passed.

    Bounded: at most `WAITS_MAX` sends wait.
    """

    def __init__(self, timeout_s: float, look_s: float = LOOK_S) -> None:
        self._timeout_s = timeout_s
        self._look_s = look_s
        self._waits: dict[ChatId, list[_Wait]] = {}
        self._count = 0

    def add(
        self,
        chat: ChatId,
        seq: Seq,
        on_stored: Callable[[], None],
        on_timeout: Callable[[], None],
    ) -> bool:
        """Wait for message `seq`; exactly one callback runs, later. False: too many wait."""
        if self._count >= WAITS_MAX:
            return False

        def give_up() -> None:
            self._waits[chat].remove(wait)
            self._forget(chat, 1)
            on_timeout()

        timer = asyncio.get_running_loop().call_later(self._timeout_s, give_up)
        wait = _Wait(seq, on_stored, on_timeout, timer)
        self._waits.setdefault(chat, []).append(wait)
        self._count += 1
        return True

    def reached(self, chat: ChatId, upto: Seq) -> None:
        """Complete the waits for the chat's messages up to `upto`, which are in the warm tier."""
        waits = self._waits.get(chat)
        if waits is None:
            return
        done = [wait for wait in waits if wait.seq <= upto]
        waits[:] = [wait for wait in waits if wait.seq > upto]
        self._forget(chat, len(done))
        for wait in done:
            wait.timer.cancel()
            wait.on_stored()

    def give_up_all(self) -> None:
        """Time out every wait: in the new epoch of Redis, these seqs may be other messages."""
        waits, self._waits, self._count = self._waits, {}, 0
        for wait in itertools.chain.from_iterable(waits.values()):
            wait.timer.cancel()
            wait.on_timeout()

    async def watch(self, log: StoredLog) -> None:
        """Check periodically how far chats with waiting sends are stored, until cancelled.

        The worker notifies the gateway that first accepted a message, and that notification may be
        lost. This check covers lost notifications, sends that were retried on this gateway, and
        processes without a mailbox.
        """
        while True:
            await asyncio.sleep(self._look_s)
            for chat in list(self._waits)[:LOOKS_MAX]:
                self._waits[chat] = self._waits.pop(chat)  # the others come first in the next round
                with contextlib.suppress(ChatError):
                    self.reached(chat, await log.get_stored(chat))

    def _forget(self, chat: ChatId, count: int) -> None:
        self._count -= count
        if not self._waits[chat]:
            del self._waits[chat]
