"""Reference model of accept, deliver, finish_fan_outs and evict_chats in plain Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from chatserver.domain.ids import ChatId, UserId
from tests.integration.hot.support import (
    CLOSED,
    COMMITTED,
    GATEWAY,
    KNOWN,
    NOT_MEMBER,
    UNDELIVERED,
    Sending,
)


@dataclasses.dataclass
class ChatModel:
    """A chat: its members with the seqs of their joins, and its state.

    `stored` is the newest seq that the log had when the chat was evicted. `done` counts only while
    `is_pending`.
    """

    joined: dict[UserId, int]
    seq: int = 0
    base: int = 0
    stored: int = 0
    done: int = 0
    epoch: str = ""
    version: int = 1
    is_pending: bool = False
    is_listed: bool = False
    own: dict[UserId, int] = dataclasses.field(default_factory=dict)
    places: dict[tuple[UserId, str], int] = dataclasses.field(default_factory=dict)
    audiences: list[tuple[str, tuple[UserId, ...]]] = dataclasses.field(default_factory=list)

    @property
    def gate(self) -> str:
        """Return the `gate` field of the chat's head."""
        return f"{self.epoch}:{self.version}" + (":p" if self.is_pending else "")

    def get_shards_min(self, user: UserId) -> int:
        """Return the seq up to which nothing is delivered to the user."""
        return max(self.base, self.joined[user] - 1)

    def record_audience(self) -> None:
        """Record the current version and members."""
        self.audiences.append((f"{self.epoch}:{self.version}", tuple(self.joined)))


@dataclasses.dataclass
class UserModel:
    """A user: the inbox, the last seq that `deliver` appended per chat, and the gateway."""

    inbox: list[tuple[ChatId, int]] = dataclasses.field(default_factory=list)
    delivered: dict[ChatId, tuple[int, str]] = dataclasses.field(default_factory=dict)
    gateway: str = ""


class HotModel:
    """Chats and users. Each method does the same as the script of that name."""

    def __init__(self, users: Sequence[UserId], chats: Sequence[ChatId]) -> None:
        self.epoch = "E1"
        self.users = {user: UserModel() for user in users}
        self.chats = {chat: ChatModel(dict.fromkeys(users[:2], 1)) for chat in chats}

    def is_open(self, chat: ChatId) -> bool:
        """Return whether the chat is open in the current epoch."""
        return self.chats[chat].epoch == self.epoch

    def open_chat(self, chat: ChatId) -> None:
        """Open a chat. Pending entries are not delivered, because devices restart."""
        state = self.chats[chat]
        state.epoch, state.is_pending = self.epoch, False
        state.base = state.seq
        state.record_audience()

    def accept(
        self, chat: ChatId, group: Sequence[Sending]
    ) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return code, seq and inbox seqs of the messages of a call."""
        if not self.is_open(chat):
            return [(CLOSED, 0, ())] * len(group)
        is_current = group[-1].gate == self.chats[chat].gate
        return [self._accept(each, group[-1].to, is_current) for each in group]

    def _accept(
        self, sending: Sending, to: tuple[UserId, ...], is_current: bool
    ) -> tuple[int, int, tuple[int, ...]]:
        chat = self.chats[sending.chat]
        is_checked = not is_current or not sending.is_member
        if (sending.sender, sending.ref) in chat.places:
            return KNOWN, chat.places[sending.sender, sending.ref], ()
        if is_checked and sending.sender not in chat.joined:
            return NOT_MEMBER, 0, ()
        chat.seq += 1
        chat.own[sending.sender] = chat.places[sending.sender, sending.ref] = chat.seq
        if not is_current or not to:
            if not chat.is_pending:
                chat.done = chat.seq - 1
            chat.is_pending = chat.is_listed = True
            return UNDELIVERED, chat.seq, ()
        if any(self.users[user].gateway not in ("", GATEWAY) for user in to):
            chat.is_listed = True
        for user in to:
            self.users[user].inbox.append((sending.chat, chat.seq))
        return COMMITTED, chat.seq, tuple(len(self.users[user].inbox) for user in to)

    def deliver(
        self, user: UserId, chat: ChatId, after: int, upto: int, epoch: str
    ) -> tuple[int, int]:
        """Return the number of appended entries, and the newest inbox seq."""
        box = self.users[user]
        last, last_epoch = box.delivered.get(chat, (0, ""))
        if last_epoch > epoch:
            return 0, len(box.inbox)
        missing = range(max(last if last_epoch == epoch else 0, after) + 1, upto + 1)
        for seq in missing:
            box.inbox.append((chat, seq))
            box.delivered[chat] = (seq, epoch)
        return len(missing), len(box.inbox)

    def finish_fan_outs(self, chat: ChatId, upto: int) -> int:
        """Return the number of chats removed from the list."""
        state = self.chats[chat]
        if state.seq > upto:
            if state.is_pending:
                state.done = max(state.done, upto)
            return 0
        was_listed, state.is_listed, state.is_pending = state.is_listed, False, False
        return int(was_listed)

    def evict(self, chat: ChatId) -> int:
        """Return the number of evicted chats. Refs stay, so that retries are recognized."""
        state = self.chats[chat]
        if state.is_listed or state.is_pending:
            return 0
        state.epoch, state.stored = "", state.seq
        state.own.clear()
        return 1

    def change_members(self, chat: ChatId, user: UserId) -> None:
        """Add a user who is not a member, or remove one who is."""
        state = self.chats[chat]
        if user in state.joined:
            del state.joined[user]
        else:
            state.joined[user] = state.seq + 1
        state.version += 1
        state.record_audience()
