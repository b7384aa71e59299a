"""The requests of a hostile user for `tests.benchmarks.memory_budget`.

They go through the use cases of a gateway on a real Redis. The charge before a request is that of
its frame at the gateway; the charge after it is that of the use case.
There is no DynamoDB: chats are opened with the members of their creation.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from chatserver.domain.access.caller import RequestCaller
from chatserver.domain.ids import (
    ID_CHARS_MAX,
    ChatId,
    GatewayId,
    Mid,
    Ref,
    UserId,
    derived_chat_id,
    direct_chat_id,
    new_id,
)
from chatserver.domain.membership_change_types import ChangeEntry, MembershipChange
from chatserver.errors import ChatError
from chatserver.hot.bus.gateway_stream import GatewayStreamWriter
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.chats.membership import HotMembership
from chatserver.hot.chats.message_changes import HiddenMessages, MessageChangeCommitter
from chatserver.hot.chats.unread_counts import UnreadCounts
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.protocol.redis_memory_costs import (
    compute_membership_change_cost,
    compute_send_cost,
)
from chatserver.requests.registry import compute_memory_cost
from chatserver.service.chats.read_marks import ReadMarks
from chatserver.service.chats.user_chats import UserChats
from chatserver.service.messaging.inbox_delivery import deliver_to_all
from chatserver.service.messaging.message_changes import MessageChangeService
from chatserver.service.messaging.message_sender import MessageSender
from tests.support.servers.processes import eventually

GATEWAY = GatewayId("gw-here")
HOSTILE = UserId("h" * ID_CHARS_MAX)
LONG_REF = "r" * (ID_CHARS_MAX - 26)
NAME = "名" * 80


def contact(number: int) -> UserId:
    """Return another user, with an id of maximum length."""
    return UserId(f"{number:0>{ID_CHARS_MAX}}")


class FakeDevices:
    """Fake devices, subscriptions and callbacks: no user is online, and every send succeeds."""

    def __init__(self) -> None:
        self.acked_count = 0

    def ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    push = notify_seq = publish = notify_channel_seq = send_signal = send_channel_signal = ignore

    def get_caller(self) -> RequestCaller:
        """Return no caller."""
        return RequestCaller()

    def on_acked(self, *_: Any, **__: Any) -> None:
        """Count a committed message."""
        self.acked_count += 1

    def on_refused(self, request_id: int, ref: str, error: ChatError) -> None:
        """Fail, because a measurement must not contain refused requests."""
        raise AssertionError(error)

    async def list_gateways(self, chat: ChatId) -> list[GatewayId]:
        """Return no gateway."""
        return []


class Day:
    """The requests of one user, and their charges.

    `charged` is the sum for the hostile user; `others_bytes` is the memory of messages of others.
    """

    def __init__(self, hot: HotClient) -> None:
        self.charged = 0
        self.count = 0
        self.others_bytes = 0
        self.hot = hot
        self.writer = HotChatWriter(hot)
        self.inboxes = Inboxes(hot)
        self.membership = HotMembership(hot)
        self.audiences = Audiences(hot, self._load, self._charge)
        self._numbers = itertools.count()
        self._closed: dict[ChatId, tuple[str, tuple[UserId, ...]]] = {}
        fakes: Any = FakeDevices()
        stream_writer, log, warm = GatewayStreamWriter(hot), ChatLog(hot), self
        self.fakes = fakes
        self.messaging = MessageSender(
            make_commits=functools.partial(PartitionedCommit, hot, GATEWAY),
            audiences=self.audiences,
            inboxes=self.inboxes,
            undelivered=UndeliveredChats(hot, stream_writer),
            devices=fakes,
            large_chats=fakes,
            charge=self._charge,
        )
        self.message_changes = MessageChangeService(
            commits=MessageChangeCommitter(hot, GATEWAY),
            hidden=HiddenMessages(hot),
            audiences=self.audiences,
            log=log,
            warm=warm,  # type: ignore[arg-type]  # every message is in Redis
            messaging=self.messaging,
            devices=fakes,
            charge=self._charge,
        )
        self.chats = UserChats(
            inboxes=self.inboxes,
            audiences=self.audiences,
            log=log,
            unread_counts=UnreadCounts(hot, self.audiences.get),
            older=warm,  # type: ignore[arg-type]  # not read
            directory=warm,  # type: ignore[arg-type]  # chats are opened only
            load_user=warm.load_user,
            devices=fakes,
            charge=self._charge,
        )
        self.read_marks = ReadMarks(
            inboxes=self.inboxes,
            audiences=self.audiences,
            load_user=warm.load_user,
            devices=fakes,
            charge=self._charge,
        )

    def _charge(self, user: str, size_bytes: int) -> None:
        if user == HOSTILE:
            self.charged += max(0, size_bytes)

    def contacts(self, count: int) -> list[UserId]:
        """Return `count` new users."""
        return [contact(next(self._numbers)) for _ in range(count)]

    # the fake warm tier

    async def _load(self, chat: ChatId) -> None:
        await self._open(chat, *self._closed[chat])

    async def _open(self, chat: ChatId, kind: str, users: Sequence[UserId]) -> None:
        members = dict.fromkeys(users, ("member", 1))
        assert await self.writer.open_chat(chat, kind, NAME, 1, members, (0, 0), ())

    async def load_user(self, user: UserId) -> None:
        """Do nothing: no user has stored data."""

    async def open_direct(self, user: UserId, other: UserId, **_: object) -> frames.ChatInfo:
        """Open a direct chat."""
        chat = direct_chat_id(user, other)
        await self._open(chat, "direct", (user, other))
        return frames.ChatInfo(chat, "direct", sorted((user, other)))

    async def create_chat(
        self, user: UserId, ref: Ref, members: list[UserId], name: str | None, **_: object
    ) -> frames.ChatInfo:
        """Open a group."""
        chat, users = derived_chat_id(user, ref), [user, *members]
        await self._open(chat, "group", users)
        return frames.ChatInfo(chat, "group", list(users), name, len(users), {user: "owner"})

    async def persist(self) -> None:
        """Deliver all messages, and empty the backlog."""
        await self.messaging.drain()
        keys = self.hot.keys
        await self.hot.call("DEL", keys.backlog(0), keys.checkpoint(0))

    # requests

    async def new_direct(self) -> ChatId:
        """Open a direct chat with a new contact."""
        (other,) = self.contacts(1)
        frame = frames.OpenDirect(1, other)
        self.charged += compute_memory_cost(frame, len(msgspec.json.encode(frame)))
        return ChatId((await self.chats.open_direct(HOSTILE, other)).chat)

    async def new_group(
        self, members: int, others: list[UserId] | None = None
    ) -> tuple[ChatId, list[UserId]]:
        """Create a group of new contacts, or of `others`, with the longest name."""
        others = self.contacts(members - 1) if others is None else others
        frame = frames.CreateChat(1, new_id(), list(others), NAME)
        self.charged += compute_memory_cost(frame, len(msgspec.json.encode(frame)))
        info = await self.chats.create_chat(HOSTILE, frame)
        return ChatId(info.chat), others

    async def send(
        self, chat: ChatId, body: str, count: int = 1, sender: UserId = HOSTILE, **more: Any
    ) -> None:
        """Send messages, each with a ref of maximum length."""
        wanted = self.fakes.acked_count + count
        for _ in range(count):
            frame = frames.Send(1, chat, new_id() + LONG_REF, body, **more)
            if sender == HOSTILE:
                self.charged += compute_send_cost(frame, len(msgspec.json.encode(frame)))
            self.messaging.submit(sender, frame, self.fakes)
        await eventually(lambda: self.fakes.acked_count >= wanted, 30)
        await self.persist()

    async def send_as_others(self, chat: ChatId, sender: UserId, body: str, count: int) -> None:
        """Send messages as another user; their memory is not charged to the hostile user."""
        before = await self.used_bytes()
        await self.send(chat, body, count, sender)
        self.others_bytes += await self.used_bytes() - before

    async def used_bytes(self) -> int:
        """Return the memory that Redis uses."""
        info = await self.hot.call("INFO", "memory")
        lines = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
        return int(lines["used_memory"])

    async def change(self, frame: frames.Edit | frames.React | frames.Delete) -> int:
        """Edit, delete or react; return the seq of the entry."""
        self.charged += compute_memory_cost(frame, len(msgspec.json.encode(frame)))
        ack = await self.message_changes.change(HOSTILE, frame)
        await self.persist()
        return ack.seq

    async def change_group(
        self, chat: ChatId, version: int, users: Sequence[UserId], frame: Any, *, is_new: bool
    ) -> None:
        """Change members of a group, as a worker does after the directory is updated."""
        self.charged += compute_memory_cost(frame, len(msgspec.json.encode(frame)))
        entries = []
        for user in users:
            entry = frames.Message(
                0, 0, chat, new_id(), HOSTILE, new_id() + LONG_REF, "member", "",
                user=user, role="member",
            )  # fmt: skip
            entries.append(ChangeEntry(user, "member", is_new, codec.encode_tail(entry)))
        ref, mid = Ref(new_id() + LONG_REF), Mid(new_id())
        made = MembershipChange(
            chat, version, NAME, "joined", HOSTILE, ref, mid, "0123abcd", entries
        )
        assert await self.membership.apply(made)
        audience = await self.audiences.get_fresh(chat)
        members = list(audience.users)
        shown = list(map(str, members))[: frames.MEMBERS_SHOWN_MAX]
        info = frames.ChatInfo(chat, "group", shown, NAME, len(members))
        if is_new:
            body = codec.encode_chat_event_body(info)
            await self.inboxes.append_event(list(users), chat, body, is_listed=True)
        await deliver_to_all(self.inboxes, self.fakes, audience, audience.top)
        undelivered = UndeliveredChats(self.hot, GatewayStreamWriter(self.hot))
        await undelivered.finish([(chat, audience.top)])
        await self.hot.call("DEL", self.hot.keys.turnover(chat))
        self.charged += compute_membership_change_cost(frame, info)
        await self.persist()

    async def read_again(self, chat: ChatId, others: Sequence[UserId]) -> None:
        """Read a chat that was evicted from Redis."""
        self._closed[chat] = ("group", (HOSTILE, *others))
        await self.audiences.get_for_member(chat, HOSTILE)
