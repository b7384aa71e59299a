"""Large-chat channel: one gateway's subscriptions to a large chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.protocol import frames
from chatserver.service.history.large_chat_log import ChannelEntry

_MEMBER = b',"kind":"member"'
_CHAT = b',"kind":"chat"'


class ChannelReader(Protocol):
    """A session subscribed to a large-chat channel."""

    user: UserId

    def send_frame(self, frame: bytes) -> None:
        """Send encoded frame bytes."""

    def send_signal(self, frame: bytes) -> None:
        """Send a signal (typing, presence), unless the device is slow."""

    async def wait_for_room(self) -> None:
        """Wait until the send queue has room."""

    def recover_chat(self, chat: ChatId) -> None:
        """Send a chat's summary (its chat list item) if its log lacks entries for the device.

        The device then reads the history. `LargeChatDelivery.find_again` returns where delivery
        resumes.
        """


class Channel:
    """A large chat with sessions on this gateway.

    `large`: the chat version at which the chat became large.
    """

    __slots__ = (
        "caught_up",
        "chat",
        "epoch",
        "firsts",
        "head",
        "is_filling",
        "large",
        "positions",
        "seq",
    )

    def __init__(self, *, chat: ChatId, epoch: Epoch, large: int, seq: Seq) -> None:
        self.chat = chat
        self.epoch = epoch
        self.large = large
        self.seq = seq  # the last seq delivered to all sessions in `caught_up`
        self.head = seq  # the newest seq known to exist
        self.caught_up: dict[ChannelReader, None] = {}
        self.positions: dict[ChannelReader, Seq] = {}
        self.firsts: dict[ChannelReader, Seq] = {}  # the seq at which each session's user joined
        self.is_filling = False

    @property
    def version(self) -> tuple[Epoch, int]:
        """`(epoch, large)`; changes with the Redis epoch and each time the chat becomes large."""
        return self.epoch, self.large

    @property
    def is_empty(self) -> bool:
        return not self.caught_up and not self.positions

    def drop(self, session: ChannelReader) -> None:
        self.caught_up.pop(session, None)
        self.positions.pop(session, None)
        self.firsts.pop(session, None)

    def get_position(self, session: ChannelReader) -> Seq | None:
        """Return the last chat seq sent to a session; None if the session is not in the channel."""
        return self.seq if session in self.caught_up else self.positions.get(session)

    def mark_caught_up(self) -> None:
        """Move the sessions whose position is the channel's `seq` to `caught_up`."""
        for session, position in list(self.positions.items()):
            if position == self.seq:
                del self.positions[session]
                self.caught_up[session] = None


class ChannelStart(NamedTuple):
    """A channel, the last chat seq sent to a session, and the chat seq at which the user joined."""

    channel: Channel
    after: Seq
    first: Seq


class LargeChatPositions(NamedTuple):
    """A session's start positions (chat seqs) in its user's large chats."""

    starts: list[ChannelStart]
    # For chats without a channel: the last seq that the device has, and whether the server has
    # checked it. An unchecked seq may be below the start of the large-chat period.
    remembered: dict[ChatId, tuple[Seq, bool]]
    # Chats that are not loaded or whose position is invalid: the device must page through history.
    closed: dict[ChatId, Seq]

    @property
    def large(self) -> list[frames.LargeChat]:
        """The user's large chats, each with a seq; the session receives only entries after it."""
        seqs = {start.channel.chat: start.after for start in self.starts}
        return [frames.LargeChat(*each) for each in (seqs | self.closed).items()]


class LargeChatTransition(NamedTuple):
    """Entries above `since` come from the chat's log if `is_large`, otherwise from the inbox."""

    chat: ChatId
    is_large: bool
    since: Seq
    is_removal: bool = False  # the event removes the user; the chat may be large or not


class _Member(msgspec.Struct, frozen=True):
    user: str = ""
    role: str = ""
    seq: int = 0


class _Info(msgspec.Struct, frozen=True):
    large: bool = False
    since: int | None = None


class _Event(msgspec.Struct):
    chat: str
    message: _Member = _Member()
    info: _Info = _Info()


_decode = msgspec.json.Decoder(_Event).decode


def find_removed_user(body: bytes) -> UserId | None:
    """Return the user whom this event removes from the chat, or None."""
    if not body.startswith(_MEMBER):
        return None
    member = _decode(b"{" + body[1:]).message
    return None if member.role else UserId(member.user)


def read_transition(body: bytes, user: UserId) -> LargeChatTransition | None:
    """Return the switch between inbox and chat log that an inbox event announces, or None."""
    if body.startswith(_CHAT):
        event = _decode(b"{" + body[1:])
        if event.info.since is not None:
            return LargeChatTransition(ChatId(event.chat), event.info.large, Seq(event.info.since))
    elif find_removed_user(body) == user:
        event = _decode(b"{" + body[1:])
        # The inbox delivers the removal entry, which is the last entry that the user receives.
        return LargeChatTransition(
            ChatId(event.chat), False, Seq(event.message.seq - 1), is_removal=True
        )
    return None


def is_leaving(session: ChannelReader, position: Seq, entries: Sequence[ChannelEntry]) -> bool:
    """Return whether the entry at chat seq `position` + 1 removes the session's user."""
    return any(e.seq == position + 1 and find_removed_user(e.body) == session.user for e in entries)
