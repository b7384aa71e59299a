"""One large chat with sessions at this gateway, and what a channel needs of sessions and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.inboxes import LargePlace
from chatserver.protocol import frames
from chatserver.service.channellog import ChannelEntry

_MEMBER = b',"kind":"member"'
_CHAT = b',"kind":"chat"'


class Head(Protocol):
    """Where a chat stands, at one moment."""

    @property
    def epoch(self) -> Epoch: ...
    @property
    def seq(self) -> Seq: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def large(self) -> int:
        """The version with which it became a large one; 0: it is none."""

    @property
    def joined(self) -> Seq:
        """The first seq of the user who was asked about; 0: no member."""


class WatchedChats(Protocol):
    """Where this gateway says which chats it wants to hear of."""

    async def listen(
        self, chats: Sequence[ChatId], user: UserId | None = None
    ) -> Sequence[Head]: ...

    async def leave(self, chats: Sequence[ChatId]) -> None: ...

    async def list_large(self, user: UserId) -> Mapping[ChatId, LargePlace]: ...

    async def find_large(self, user: UserId, chat: ChatId) -> LargePlace | None: ...

    async def find_since(self, user: UserId, chat: ChatId, told: Seq) -> Seq | None: ...


class Log(Protocol):
    """The chats' logs."""

    async def list_live(
        self, chat: ChatId, after: Seq, limit: int
    ) -> tuple[int | None, list[ChannelEntry]]: ...

    async def list_for(
        self, user: UserId, chat: ChatId, after: Seq, limit: int
    ) -> list[ChannelEntry]: ...


class Subscriber(Protocol):
    """A session, as a channel sees it."""

    user: UserId

    def send_frame(self, frame: bytes) -> None:
        """Send ready-made frame bytes."""

    def signal(self, frame: bytes) -> None:
        """Send a signal, if there is room."""

    async def wait_for_room(self) -> None:
        """Return when the device has taken enough for more to be sent."""

    def missed_too_much(self, chat: ChatId) -> None:
        """The log no longer holds what comes next, and the channel has let the session go.

        The device has to page history; the session comes back by `Channels.find_again`.
        """


class Channel:
    """A large chat that somebody here is in, as it became one with version `large`."""

    __slots__ = (
        "apart",
        "chat",
        "epoch",
        "firsts",
        "head",
        "in_step",
        "is_filling",
        "large",
        "seq",
    )

    def __init__(self, chat: ChatId, epoch: Epoch, large: int, seq: Seq) -> None:
        self.chat = chat
        self.epoch = epoch
        self.large = large
        self.seq = seq  # what all in step have
        self.head = seq  # the newest known to exist
        self.in_step: dict[Subscriber, None] = {}
        self.apart: dict[Subscriber, Seq] = {}
        self.firsts: dict[Subscriber, Seq] = {}  # where the user of each joined
        self.is_filling = False

    @property
    def is_empty(self) -> bool:
        """True if nobody here is in it any more."""
        return not self.in_step and not self.apart

    def drop(self, session: Subscriber) -> None:
        """Forget a session."""
        self.in_step.pop(session, None)
        self.apart.pop(session, None)
        self.firsts.pop(session, None)

    def place_of(self, session: Subscriber) -> Seq | None:
        """Return what the session has; None if it is not in here."""
        return self.seq if session in self.in_step else self.apart.get(session)

    def let_in(self) -> None:
        """Take those into step whom the channel has just come level with."""
        for session, place in list(self.apart.items()):
            if place == self.seq:
                del self.apart[session]
                self.in_step[session] = None


class ChannelPlace(NamedTuple):
    """A session's position in a channel, and the seq at which its user joined the chat."""

    channel: Channel
    after: Seq
    first: Seq


class Entry(NamedTuple):
    """How a session goes into its user's large chats: where it stands in each."""

    places: list[ChannelPlace]
    remembered: dict[ChatId, tuple[Seq, bool]]  # it is in none: chat → place, whether it is proven
    closed: dict[ChatId, Seq]  # not open, or the place is none: the device is to page history

    @property
    def large(self) -> list[frames.LargeChat]:
        """The large chats, each with the place after which its events begin, as devices get them.

        A device that is not told of one would not name its place there when it comes back, and miss
        what was said meanwhile.
        """
        places = {place.channel.chat: place.after for place in self.places}
        return [frames.LargeChat(*each) for each in (places | self.closed).items()]


class Turn(NamedTuple):
    """An event by which a chat becomes large for a user, or ceases to be, above `since`."""

    chat: ChatId
    is_large: bool
    since: Seq
    is_removal: bool = False  # of the user; the chat need not be a large one


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


def leaver_of(body: bytes) -> UserId | None:
    """Return who is no member any more, by the event of an entry; None: it says no such thing."""
    if not body.startswith(_MEMBER):
        return None
    member = _decode(b"{" + body[1:]).message
    return None if member.role else UserId(member.user)


def read_turn(body: bytes, user: UserId) -> Turn | None:
    """Return how an event of the inbox of `user` turns a chat for him; None for nearly all."""
    if body.startswith(_CHAT):
        event = _decode(b"{" + body[1:])
        if event.info.since is not None:
            return Turn(ChatId(event.chat), event.info.large, Seq(event.info.since))
    elif leaver_of(body) == user:
        event = _decode(b"{" + body[1:])
        # The entry itself is the last, and comes by the inbox.
        return Turn(ChatId(event.chat), False, Seq(event.message.seq - 1), is_removal=True)
    return None
