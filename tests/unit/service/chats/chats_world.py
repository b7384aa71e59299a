"""Fakes of the directory, the stored messages and Redis for the chat and user loaders."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.inboxes import ListedChat
from chatserver.protocol import frames
from chatserver.service.chats.chat_creator import ChatCreator
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.service.chats.user_loader import UserLoader
from chatserver.warm.chats.directory import ChatMembership
from chatserver.warm.chats.directory_items import StoredChat, StoredMember, User
from chatserver.warm.chats.user_restrictions import Restrictions
from tests.support.fake_clocks import FakeClock
from tests.unit.service.builders import ALICE, BOB

RestoreRevoked = Callable[[User, Collection[str]], Awaitable[None]]


def message(seq: int) -> frames.Message:
    """Return a stored message."""
    return frames.Message(seq, 1000 + seq, "c1", f"m{seq}", "bob", f"r{seq}", "text", "hi")


EPOCH = Epoch("E1")


@dataclasses.dataclass
class Warm:
    """Directory and messages of the warm tier; records the calls."""

    users: set[str] = dataclasses.field(default_factory=lambda: {ALICE, BOB})
    created_ms: int | None = None
    memberships: list[ChatMembership] = dataclasses.field(default_factory=list)
    head: frames.Message | None = None
    newest: list[frames.Message] = dataclasses.field(default_factory=list)
    calls: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    change: str | None = None
    version: int = 1
    lowest: int = 1  # below it, nothing is stored
    is_restricted: bool = False
    restrictions: Restrictions = Restrictions()  # noqa: RUF009  immutable
    filled: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    async def put_user_if_absent(self, user: str, name: str | None, now: float) -> User:
        self.calls.append(("put_user", user))
        self.users.add(user)
        return User(user, name, int(now))

    async def find_known(self, users: Collection[str]) -> set[str]:
        return self.users & set(users)

    async def create_direct(self, chat: str, user: str, other: str, now: float) -> StoredChat:
        self.calls.append(("create_direct", chat, user, other))
        return StoredChat(chat, "direct", None, 1, 0)

    async def find_direct(self, chat: str, user: str) -> tuple[bool, bool]:
        return False, False

    async def list_direct(self, chat: str, user: str) -> bool:
        self.calls.append(("list_direct", chat, user))
        return True

    async def create_group(
        self,
        chat: str,
        creator: str,
        members: Sequence[str],
        name: str | None,
        now: float,
        first_change: str | None = None,
        invited: Sequence[str] = (),
    ) -> StoredChat:
        self.calls.append(("create_group", chat, creator, list(members), name))
        large = 0 if first_change is None else 1
        return StoredChat(chat, "group", name, self.version, 0, change=first_change, large=large)

    async def propagate(self, chat: str) -> None:
        self.calls.append(("propagate", chat))

    async def get_chat_with_members(self, chat: str) -> tuple[StoredChat, list[StoredMember]]:
        return StoredChat(chat, "group", "Team", 3, 0, history="all", change=self.change), [
            StoredMember(chat, ALICE, "owner", joined=1),
            StoredMember(chat, BOB, "member", joined=5),
        ]

    async def get_or_create_user(self, user: str, now: float) -> tuple[User, bool]:
        is_new = user not in self.users
        self.users.add(user)
        created_ms = int(now) if self.created_ms is None else self.created_ms
        return User(user, None, created_ms, is_restricted=self.is_restricted), is_new

    async def list_all_memberships(self, user: str, sessions_max: int) -> list[ChatMembership]:
        self.calls.append(("list_all_memberships", user))
        return self.memberships

    async def read(self, user: str) -> Restrictions:
        """Return restrictions, as `UserRestrictions` does."""
        self.calls.append(("read_restrictions", user))
        return self.restrictions

    async def find_head(self, chat: str) -> frames.Message | None:
        return self.head

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[frames.Message]:
        self.calls.append(("list_before", before, limit, ts_hint))
        return self.newest[-limit:]

    async def get_archived_ts(self, chat: str) -> int:
        return 0

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        if self.lowest > seq:
            return False
        self.filled.append((seq, ts))
        self.newest = [message(seq), *self.newest]
        return True

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[frames.Message]:
        self.calls.append(("list_after", after, limit, ts_hint))
        return self.newest[:limit]


@dataclasses.dataclass
class Hot:
    """Redis; records what is loaded."""

    chats: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    opened: list[tuple[str, Epoch | None]] = dataclasses.field(default_factory=list)
    large: list[int] = dataclasses.field(default_factory=list)
    unfinished: list[ChatId] = dataclasses.field(default_factory=list)
    stale: int = 0  # the number of reads that are outdated
    ref_ttl_s: int = 60
    seq: Seq = Seq(2**40)  # noqa: RUF009  # the newest seq in Redis; by default everything is there
    user_states: list[tuple[UserId, list[ListedChat], Epoch]] = dataclasses.field(
        default_factory=list
    )
    blocks: dict[UserId, set[UserId]] = dataclasses.field(default_factory=dict)
    user_epoch: Epoch = EPOCH

    async def open_chat(
        self,
        chat: ChatId,
        kind: str,
        name: str | None,
        version: int,
        members: Mapping[UserId, tuple[str, int]],
        head: tuple[int, int],
        newest: Sequence[frames.Message],
        history: str = "joined",
        epoch: Epoch | None = None,
        large: int = 0,
        **rest: object,
    ) -> bool:
        self.large.append(large)
        self.chats.append((chat, kind, name, version, dict(members), head, list(newest)))
        self.opened.append((history, epoch))
        return len(self.chats) > self.stale

    async def get_seq(self, chat: ChatId) -> Seq:
        return self.seq

    async def record_unfinished(self, chat: ChatId) -> None:
        self.unfinished.append(chat)

    def get_chat_epoch(self, chat: ChatId) -> Epoch:
        return EPOCH

    def get_user_epoch(self, user: UserId) -> Epoch:
        return self.user_epoch

    async def open_hidden(self, user: UserId, hidden: Mapping[ChatId, Sequence[int]]) -> None:
        assert not hidden

    async def open_blocks(self, user: UserId, others: Collection[UserId]) -> None:
        self.blocks[user] = set(others)

    async def open_user_state(
        self, user: UserId, chats: Sequence[ListedChat], epoch: Epoch
    ) -> None:
        self.user_states.append((user, list(chats), epoch))


class Unlimited:
    """Blocks and invitations without restrictions."""

    async def is_blocked(self, user: UserId, other: UserId) -> bool:
        return False

    async def require_unblocked(self, user: UserId, others: Collection[UserId]) -> None:
        pass

    async def mark_new_chat(self, chat: ChatId, user: UserId, other: UserId) -> None:
        pass

    async def find_strangers(
        self, inviter: UserId, users: Collection[UserId], *, is_host: bool
    ) -> set[UserId]:
        return set()

    async def require_group_quota(self, users: Collection[UserId]) -> None:
        pass

    async def require_direct_chat_quota(self, user: UserId) -> None:
        pass

    async def require_contact(self, user: UserId, other: UserId) -> None:
        pass


def make_user_loader(
    warm: Warm,
    hot: Hot,
    restore_revoked: RestoreRevoked | None = None,
    clock: FakeClock | None = None,
) -> UserLoader:
    """Return a user loader with fakes."""
    return UserLoader(
        directory=warm,
        hot=hot,
        inboxes=hot,
        hidden=hot,
        restrictions=warm,
        blocks=hot,
        clock=clock or FakeClock(),
        restore_revoked=restore_revoked,
    )


def make_chat_loader(warm: Warm, hot: Hot) -> ChatLoader:
    """Return a chat loader with fakes."""
    return ChatLoader(
        directory=warm,
        messages=warm,
        changes=warm,
        hot=hot,
        inboxes=hot,
        member_states=warm,
        hidden=hot,
        clock=FakeClock(),
    )


def make_creator(warm: Warm, hot: Hot, **limits: int) -> ChatCreator:
    """Return a chat creator with fakes."""
    return ChatCreator(
        directory=warm,
        loader=make_chat_loader(warm, hot),
        block_policy=Unlimited(),
        invitations=Unlimited(),
        clock=FakeClock(),
        propagate=warm.propagate,
        **limits,
    )
