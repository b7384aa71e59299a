"""Fakes for the tests of large-chat delivery: the hot tier, sessions and a gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

from chatserver.domain.ids import ChatId, Epoch, Seq, Ts, UserId
from chatserver.domain.inboxes import LargePeriod
from chatserver.domain.messages import LogEntry
from chatserver.errors import Unavailable
from chatserver.gateway.delivery.large_chat_channel import LargeChatTransition
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.hot.chats.large_chat_subscriptions import LargeHead
from chatserver.protocol import codec
from chatserver.service.history.large_chat_log import ChannelEntry

CHAT = ChatId("g-1")
EPOCH, NEXT_EPOCH = Epoch("E1"), Epoch("E2")
ALICE, BOB = UserId("alice"), UserId("bob")


class Tier:
    """A chat in the hot tier: its log, its members and the seqs from which it is large."""

    def __init__(self, top: int = 0) -> None:
        self.epoch = EPOCH
        self.entries = [entry_of(seq) for seq in range(1, top + 1)]
        self.listeners = 0
        self.is_down = False
        self.is_open = True
        self.large = 1
        self.ended: dict[tuple[UserId, Seq], Seq] = {}
        self.reads = 0
        self.removed_users: set[UserId] = set()
        self.periods: dict[UserId, LargePeriod] = {}

    @property
    def top(self) -> int:
        return self.entries[-1].seq if self.entries else 0

    def commit(self, **fields: str) -> LogEntry:
        """Append an entry."""
        entry = entry_of(self.top + 1, **fields)
        self.entries.append(entry)
        return entry

    def trim(self, upto: int) -> None:
        """Remove the entries up to `upto`."""
        self.entries = [entry for entry in self.entries if entry.seq > upto]

    def record_transition(
        self, user: UserId, inbox_seq: int, since: int, until: int | None = None
    ) -> None:
        """Record the inbox position of a transition."""
        end = None if until is None else Seq(until)
        self.periods[user] = LargePeriod(Seq(inbox_seq), Seq(since), end)
        if end is not None:
            self.ended[user, Seq(inbox_seq)] = Seq(since)

    async def open(self, chat: ChatId) -> None:
        self._check()
        self.is_open = True

    async def subscribe(
        self, chats: Sequence[ChatId], user: UserId | None = None
    ) -> list[LargeHead]:
        self._check()
        self.listeners += 1
        joined = Seq(0 if user is None or user in self.removed_users else 1)
        top, large = (Seq(self.top), self.large) if self.is_open else (Seq(0), 0)
        return [LargeHead(self.epoch, top, self.is_open, large, joined) for _ in chats]

    async def unsubscribe(self, chats: Sequence[ChatId]) -> None:
        self.listeners = 0

    async def list_large(self, user: UserId) -> dict[ChatId, LargePeriod]:
        return {CHAT: self.periods.get(user, LargePeriod(Seq(0), Seq(0)))}

    async def find_large(self, user: UserId, chat: ChatId) -> LargePeriod | None:
        self._check()
        return self.periods.get(user, LargePeriod(Seq(0), Seq(0)))

    async def find_since(self, user: UserId, chat: ChatId, inbox_seq: Seq) -> Seq | None:
        self._check()
        return self.ended.get((user, inbox_seq))

    async def list_live(
        self, chat: ChatId, after: Seq, limit: int
    ) -> tuple[int | None, list[ChannelEntry]]:
        found = await self.list_for(ALICE, chat, after, limit)
        return (self.large, found) if self.is_open else (None, [])

    async def list_for(
        self, user: UserId, chat: ChatId, after: Seq, limit: int
    ) -> list[ChannelEntry]:
        self._check()
        self.reads += 1
        found = [entry for entry in self.entries if entry.seq > after][:limit]
        await asyncio.sleep(0)
        return [ChannelEntry(entry.seq, body_of(entry)) for entry in found]

    def _check(self) -> None:
        if self.is_down:
            raise Unavailable("redis: unavailable")


def body_of(entry: LogEntry) -> bytes:
    """Return the fields of an entry that an event contains."""
    return codec.encode_entry_event_body(CHAT, entry.seq, entry.ts, entry.tail)


def entry_of(seq: int, **fields: str) -> LogEntry:
    """Return an entry; with `user` and `role`, it is a membership change."""
    kind = "member" if fields else "text"
    tail = codec.encode_message_tail(CHAT, f"m{seq}", ALICE, f"r{seq}", kind, "hi", None)
    for name, value in fields.items():
        tail = tail[:-1] + f',"{name}":"{value}"}}'.encode()
    return LogEntry(Seq(seq), Ts(seq * 10), tail)


class Device:
    """A session that records what it is sent."""

    def __init__(self, user: UserId = ALICE) -> None:
        self.user = user
        self.received: list[int] = []
        self.frames: list[bytes] = []
        self.recoveries: list[int] = []
        self.signals: list[bytes] = []

    def send_frame(self, frame: bytes) -> None:
        event = json.loads(frame[frame.index(b"{") :])
        assert event["seq"] == 0
        assert event["cs"] == event["message"]["seq"]
        self.received.append(event["cs"])
        self.frames.append(frame)

    async def wait_for_room(self) -> None:
        await asyncio.sleep(0)

    def recover_chat(self, chat: ChatId) -> None:
        self.recoveries.append(len(self.received))

    def send_signal(self, frame: bytes) -> None:
        self.signals.append(frame)


class World:
    """The channels of a gateway with a fake hot tier."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.sessions: dict[UserId, list[Device]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.channels = LargeChatDelivery(
            subscriptions=cast(Any, tier),
            chat_log=cast(Any, tier),
            open_chat=tier.open,
            list_sessions=lambda user: self.sessions.get(user, ()),
            spawn=self.spawn,
            device_epoch=lambda: tier.epoch,
        )

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def wait_until_idle(self) -> None:
        """Wait until no task is running."""
        while self.tasks:
            await asyncio.gather(*self.tasks)

    async def join(self, device: Device, after: int | None = None, start: int = 0) -> None:
        """Attach a device, as a session does at hello."""
        known = None if after is None else {CHAT: after}
        entry = await self.channels.open_for(device.user, Seq(start), known)
        self.sessions.setdefault(device.user, []).append(device)
        self.channels.enter(device, entry)

    async def reattach(self, device: Device) -> None:
        """Attach a device again, as a session does after it was detached for recovery."""
        found = await self.channels.find_again(device, CHAT)
        if found is not None:
            self.channels.attach(device, found)

    async def finish(
        self, device: Device, upto: int, inbox_seq: int, *, is_removal: bool = False
    ) -> None:
        """Act as a session whose inbox says that the chat was large up to `upto`."""
        transition = LargeChatTransition(CHAT, False, Seq(upto), is_removal)
        await self.channels.finish(device, transition, Seq(inbox_seq))

    def push(self, entry: LogEntry) -> None:
        """Push an entry, as a commit or a record of another gateway does."""
        self.channels.push(CHAT, self.tier.epoch, entry.seq, body_of(entry))


def run(test: Callable[[World], Awaitable[None]], top: int = 0) -> World:
    """Run a test in a new event loop."""

    async def main() -> World:
        world = World(Tier(top))
        await test(world)
        await world.wait_until_idle()
        return world

    return asyncio.run(main())
