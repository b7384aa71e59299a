"""Redis and the warm tier as fakes, for the use cases of chats."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from chatserver.domain.ids import ChatId, GatewayId, Ref, Seq, Ts, UserId
from chatserver.domain.inboxes import AppendResult, UserChat, UserMarks
from chatserver.domain.message_change_types import HiddenSeqs
from chatserver.domain.messages import ChatHead, LogEntry
from chatserver.errors import ChatError, NotFound
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.protocol import codec, frames
from tests.unit.service.builders import BOB, CHAT

REMOTE = (GatewayId("gw2"),)


@dataclasses.dataclass
class Hot:
    """Inboxes, logs and signals in one fake."""

    chats_in_list: list[UserChat] = dataclasses.field(default_factory=list)
    marks: dict[UserId, tuple[int, int]] = dataclasses.field(default_factory=dict)
    tops: dict[ChatId, int] = dataclasses.field(default_factory=dict)
    evicted: set[ChatId] = dataclasses.field(default_factory=set)
    logged: bool = True
    excluded: tuple[int, ...] = ()
    result: UserMarks = UserMarks(Seq(4), Seq(5))  # noqa: RUF009  # frozen
    listed: set[UserId] = dataclasses.field(default_factory=set)
    appended: list[tuple[list[UserId], bytes]] = dataclasses.field(default_factory=list)
    levels: list[tuple[UserId, int]] = dataclasses.field(default_factory=list)
    is_loaded: bool = True  # Redis has all chats of the user
    is_member: bool = True  # the user has the chat that is marked
    has_marks: bool = False  # the inboxes contain these marks or newer ones
    notified: list[UserId] = dataclasses.field(default_factory=list)
    signals: list[tuple[UserId, bytes]] = dataclasses.field(default_factory=list)

    async def find_all_chats(self, user: UserId) -> list[UserChat] | None:
        return list(self.chats_in_list) if self.is_loaded else None

    async def is_known(self, user: UserId) -> bool:
        return self.is_loaded

    async def get_marks(self, user: UserId, chat: ChatId) -> UserMarks:
        is_open = chat not in self.evicted
        read, received = self.marks.get(user, (0, 0)) if is_open else (0, 0)
        return UserMarks(Seq(read), Seq(received), is_open)

    async def mark(self, user: UserId, chat: ChatId, read: Seq, received: Seq) -> UserMarks:
        if not self.is_loaded or not self.is_member:
            raise NotFound("chat: no such chat, or you are not a member")
        return self.result

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, *, is_listed: bool = False
    ) -> list[AppendResult]:
        self.appended.append((list(users), body))
        new = [user for user in users if not (is_listed and user in self.listed)]
        self.listed |= set(users)
        return [AppendResult(user, int(user in new), Seq(1), REMOTE) for user in users]

    async def append_marks(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, reader: UserId, level: int
    ) -> list[AppendResult]:
        self.levels.append((reader, level))
        places = await self.append_event(users, chat, body)
        return [dataclasses.replace(place, appended=int(not self.has_marks)) for place in places]

    async def list_gateways(self, users: Sequence[UserId]) -> list[tuple[GatewayId, ...]]:
        return [REMOTE for _ in users]

    async def get_head(self, chat: ChatId) -> ChatHead:
        is_open = chat not in self.evicted
        return ChatHead(Seq(self.tops.get(chat, 0) if is_open else 0), is_open)

    async def list_before(self, chat: ChatId, before: Seq | None, limit: int) -> list[LogEntry]:
        top = self.tops.get(chat, 0)
        if not self.logged or not top:
            return []
        tail = codec.encode_message_tail(chat, "m", BOB, "r", "text", f"hot {top}", None)
        return [LogEntry(Seq(top), Ts(1000 + top), tail)]

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]:
        return []

    async def count(
        self, chat: ChatId, read: Seq, top: Seq, now_s: float, hidden: HiddenSeqs
    ) -> int:
        return sum(
            seq not in self.excluded and seq not in hidden for seq in range(read + 1, top + 1)
        )

    async def is_earlier_history_readable(self, chat: ChatId) -> bool:
        return False

    async def list_blocked(self, user: UserId) -> set[UserId]:
        return set()

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        assert gateways == REMOTE
        self.notified.append(user)

    def send_signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        self.signals.append((user, frame))


@dataclasses.dataclass
class Warm:
    """The warm tier: creates chats, and has the message below any seq."""

    error: ChatError | None = None
    hot: Hot | None = None  # where users are loaded
    created: list[tuple[str, list[str], str | None]] = dataclasses.field(default_factory=list)

    async def load_user(self, user: UserId) -> None:
        if self.error is not None:
            raise self.error
        if self.hot is not None:
            self.hot.is_loaded = True

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        return frames.ChatInfo(CHAT, "direct", sorted((user, other)))

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        self.created.append((user, list(members), name))
        return frames.ChatInfo(CHAT, "group", [user, *members], name)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        if self.error is not None:
            raise self.error
        assert before is not None
        return HistoryRun([frames.Message(before - 1, 9, chat, "m", BOB, "r", "text", "warm")])
