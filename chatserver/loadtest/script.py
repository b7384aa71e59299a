"""API of load scripts: one `LoadUser` per simulated user, with its chats and its messages.

A script defines ``async def user(user: LoadUser)``; docs/load.md describes it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import attrs

from chatserver.loadtest import frame_reader
from chatserver.loadtest.device import ANSWER_S, LoadDevice
from chatserver.loadtest.worker_state import ParsedBody, get_body_text, get_now_us

if TYPE_CHECKING:
    from chatserver.loadtest.script_metrics import ScriptMetrics

__all__ = ["LoadChat", "LoadUser", "ReceivedMessage", "SentMessage"]

T = TypeVar("T")

RECEIVED_MAX: Final = 100  # per user and chat; the oldest unread message is dropped first
TEXT_BYTES_MAX: Final = 15_000
WITHIN_S: Final = 5.0


@attrs.frozen
class ReceivedMessage:
    """A message from another user of this load test."""

    chat: str
    sender: str
    text: str
    seq: int
    latency_s: float  # since the sender was due to send it


@attrs.frozen
class HistoryMessage:
    """A message of a history page, possibly from another load test."""

    seq: int
    sender: str
    text: str


class DeliveryTracker:
    """Detects when all members of one chat have received a message. Shared by the members."""

    def __init__(self, chat: str) -> None:
        self.chat = chat
        self.devices: Sequence[LoadDevice] = ()
        self._waiting: dict[int, tuple[set[str], list[asyncio.Future[None]]]] = {}

    def record(self, user: str, seq: int) -> None:
        waiting = self._waiting.get(seq)
        if waiting is None:
            return
        users, futures = waiting
        users.discard(user)
        if not users:
            del self._waiting[seq]
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def wait(self, seq: int) -> None:
        if seq not in self._waiting:
            missing = {each.user for each in self.devices if not each.has_received(self.chat, seq)}
            if not missing:
                return
            self._waiting[seq] = (missing, [])
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[seq][1].append(future)
        try:
            await future
        finally:
            entry = self._waiting.get(seq)
            if entry is not None:
                entry[1].remove(future)
                if not entry[1]:
                    del self._waiting[seq]


class LoadChat:
    """One of the user's chats. `members` are user ids; `position` is the user's index in it."""

    def __init__(
        self, name: str, id_: str, members: Sequence[str], position: int, tracker: DeliveryTracker
    ) -> None:
        self.name = name
        self.id = id_
        self.members = members
        self.position = position
        self.tracker = tracker


class SentMessage:
    """A message that was sent or queued. `seq` is 0 until it is acked.

    `error` is the code of the server's refusal, if any.
    """

    def __init__(self, user: LoadUser, chat: LoadChat) -> None:
        self.chat = chat.name
        self.seq = 0
        self.error = ""
        self._user = user
        self._tracker = chat.tracker
        self._answered = asyncio.Event()

    def handle_result(self, seq: int, error: str) -> None:
        self.seq, self.error = seq, error
        self._answered.set()

    async def check_acked(self, *, within_s: float = WITHIN_S) -> bool:
        """Check that the server acks the message in this time, counted from this call."""
        is_answered = await self._user.wait_within(self._answered.wait(), within_s)
        return self._user.check(f"acked within {within_s:g} s", is_answered and self.seq > 0)

    async def check_delivered(self, *, within_s: float = WITHIN_S) -> bool:
        """Check that each member, including the sender, receives it in this time."""
        is_delivered = await self._user.wait_within(self._wait_until_delivered(), within_s)
        return self._user.check(f"delivered within {within_s:g} s", is_delivered and self.seq > 0)

    async def _wait_until_delivered(self) -> None:
        await self._answered.wait()
        if self.seq:
            await self._tracker.wait(self.seq)


class LoadUser:
    """A simulated user. `number` is unique in the load test; `random` depends on the seed."""

    def __init__(
        self,
        device: LoadDevice,
        chats: Mapping[str, LoadChat],
        metrics: ScriptMetrics,
        chance: random.Random,
    ) -> None:
        self.name = device.user
        self.number = device.index
        self.chats = chats
        self.random = chance
        self._device = device
        self._metrics = metrics
        self._names = {chat.id: name for name, chat in chats.items()}
        self._received = {
            name: collections.deque[ReceivedMessage](maxlen=RECEIVED_MAX) for name in chats
        }
        self._has_received = asyncio.Event()
        self._pauses = 0
        # The due time of the current round of `every`, until the user waits for something.
        self._due_us = 0
        self._ended = asyncio.Event()
        device.listener = self

    @property
    def is_running(self) -> bool:
        """False when the load has ended."""
        return not self._ended.is_set()

    @property
    def is_pausing(self) -> bool:
        """True in `think` and `receive`, where the end of the load ends the user."""
        return self._pauses > 0

    async def think(self, mean_s: float) -> None:
        """Pause for a random time with this mean (exponential), at most ten times the mean."""
        seconds = min(self.random.expovariate(1 / mean_s), 10 * mean_s) if mean_s > 0 else 0.0
        await self._pause(asyncio.sleep(seconds))

    async def every(self, interval_s: float) -> AsyncIterator[int]:
        """Yield 0, 1, 2, … at a fixed rate, however slow the server is, until the load ends.

        A round that starts late does not delay the due times of the next ones. Latencies of actions
        that no `await` precedes in the round count from the due time. The first round is due at a
        random time within the interval.
        """
        if interval_s <= 0:
            raise ValueError(f"every({interval_s:g}): the interval must be more than 0 s")
        due_s = time.monotonic() + self.random.random() * interval_s
        number = 0
        while not await self.wait_within(self._ended.wait(), due_s - time.monotonic()):
            self._due_us = round(due_s * 1e6)
            yield number
            number += 1
            due_s += interval_s

    def send(self, chat: str, text: str | None = None) -> SentMessage:
        """Send a message without waiting for the server.

        The load tool puts about 50 bytes in front of the text. Without a text, the body has
        `--body-bytes`. A message that is not acked is sent again after a reconnect.
        """
        if text is not None and len(text.encode()) > TEXT_BYTES_MAX:
            raise ValueError(f"send: the text has more than {TEXT_BYTES_MAX:,} bytes")
        found = self._get_chat(chat)
        self._count("offered")
        sent = SentMessage(self, found)
        if not self._device.send(found.id, self._get_due_us(), text, sent.handle_result):
            sent.handle_result(0, "queue_full")
        return sent

    @overload
    async def receive(self, chat: str | None = None) -> ReceivedMessage: ...

    @overload
    async def receive(
        self, chat: str | None = None, *, within_s: float
    ) -> ReceivedMessage | None: ...

    async def receive(
        self, chat: str | None = None, *, within_s: float | None = None
    ) -> ReceivedMessage | None:
        """Return the next message from another user, in this chat or in any of them.

        Return None if there is none in this time. Without `within_s`, wait until the load ends.
        A user keeps the newest 100 unread messages of each chat.
        """
        name = None if chat is None else self._get_chat(chat).name
        queues = list(self._received.values()) if name is None else [self._received[name]]
        deadline_s = None if within_s is None else time.monotonic() + within_s
        while True:
            for queue in queues:
                if queue:
                    return queue.popleft()
            self._has_received.clear()
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            try:
                async with asyncio.timeout(left_s):
                    await self._pause(self._has_received.wait())
            except TimeoutError:
                return None

    async def read_history(
        self, chat: str, *, before: int | None = None
    ) -> list[HistoryMessage] | None:
        """Read up to 50 messages, oldest first: the newest ones, or those before a seq.

        The page is checked for gaps and changed messages. Return None if the request failed.
        """
        found = self._get_chat(chat)
        top = self._device.state.records[found.id].top
        before = top + 1 if before is None else min(before, top + 1)
        if before < 2:
            return []
        self._count("offered")
        reply: asyncio.Future[frame_reader.Page | None]
        reply = asyncio.get_running_loop().create_future()
        self._device.request_page(
            found.id,
            before,
            self._get_due_us(),
            on_page=lambda page: None if reply.done() else reply.set_result(page),
        )
        self._due_us = 0
        try:
            async with asyncio.timeout(ANSWER_S):
                page = await reply
        except TimeoutError:
            self._count("refused:timeout")
            page = None
        if page is None:
            return None
        run = self._device.state.run
        return [
            HistoryMessage(each.seq, each.sender, get_body_text(run, each.body))
            for each in sorted(page.messages, key=lambda each: each.seq)
        ]

    def mark_read(self, chat: str) -> None:
        """Mark everything as read that this user has received."""
        found = self._get_chat(chat)
        seq = self._device.received[found.id].last
        if seq is not None:
            self._device.post({"type": "mark", "chat": found.id, "read": seq})

    def set_typing(self, chat: str, is_typing: bool = True) -> None:
        """Notify the other members that this user started or stopped typing."""
        self._device.post({"type": "typing", "chat": self._get_chat(chat).id, "on": is_typing})

    async def request(self, type_: str, **fields: Any) -> dict[str, Any]:
        """Send any request of docs/protocol.md that has an `id`, and return its response.

        Nothing is raised: if it failed, the response has the `type` "error" and a `code`, which
        is "disconnected" or "timeout" if the server did not respond.
        """
        self._count("offered")
        due_us = self._get_due_us()
        self._due_us = 0
        try:
            reply = await self._device.request_fields({**fields, "type": type_})
        except ConnectionError as exc:
            reply = {"type": "error", "code": "disconnected", "message": str(exc)}
        except TimeoutError:
            reply = {"type": "error", "code": "timeout", "message": "no response"}
        if reply["type"] == "error":
            self._count(f"refused:{reply['code']}")
            refusals = self._device.state.refusals
            refusals.setdefault(reply["code"], f"{type_}: {reply['message']}")
        else:
            self._count("requests")
            self._device.state.meters.record_latency("request", get_now_us() - due_us)
        return reply

    async def reconnect(self, *, after_s: float = 0.0) -> None:
        """Cut the connection, stay away for this time, then connect and resume."""
        self._count("offered")
        self._device.abort()
        try:
            await self._pause(asyncio.sleep(after_s))
        finally:  # also if the load ends: the user must be connected for its last messages
            connecting = self._device.start_connecting(get_now_us())
        await asyncio.wait([connecting])

    def check(self, name: str, is_passed: object) -> bool:
        """Count a passed or failed check. A failed check fails the load test, but not the user."""
        self._metrics.record_check(name, bool(is_passed))
        return bool(is_passed)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the script's own."""
        self._metrics.add_count(name, amount)

    def record_time(self, name: str, seconds: float) -> None:
        """Record a time of the script's own; the report has its percentiles."""
        self._metrics.record_time(name, seconds)

    @contextlib.contextmanager
    def timer(self, name: str) -> Iterator[None]:
        """Record how long the block takes, unless it raises."""
        begin_s = time.monotonic()
        yield
        self._metrics.record_time(name, time.monotonic() - begin_s)

    def handle_message(self, chat: str, message: frame_reader.Message, read: ParsedBody) -> None:
        name = self._names.get(chat)
        if name is None:
            return
        self.chats[name].tracker.record(self.name, message.seq)
        if message.sender == self.name:
            return
        latency_s = max(0, get_now_us() - read.due_us) / 1e6
        received = ReceivedMessage(name, message.sender, read.text, message.seq, latency_s)
        self._received[name].append(received)
        self._has_received.set()

    def end(self) -> None:
        """End the load for this user: its next pause ends it."""
        self._ended.set()

    async def wait_within(self, awaitable: Awaitable[object], within_s: float) -> bool:
        self._due_us = 0
        try:
            async with asyncio.timeout(within_s):
                await awaitable
        except TimeoutError:
            return False
        return True

    async def _pause(self, awaitable: Coroutine[Any, Any, T]) -> T:
        if self._ended.is_set():
            awaitable.close()
            raise asyncio.CancelledError
        self._due_us = 0
        self._pauses += 1
        try:
            return await awaitable
        finally:
            self._pauses -= 1

    def _get_due_us(self) -> int:
        return self._due_us or get_now_us()

    def _get_chat(self, name: str) -> LoadChat:
        chat = self.chats.get(name)
        if chat is None:
            raise ValueError(f"no chat {name!r}; CHATS declares {', '.join(self.chats)}")
        return chat

    def _count(self, name: str) -> None:
        self._device.state.meters.counts[name] += 1
