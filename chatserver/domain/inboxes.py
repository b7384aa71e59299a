"""What inboxes and boxes hold, as values. The adapter is `chatserver.hot.inbox`."""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts, UserId


@dataclasses.dataclass(frozen=True, slots=True)
class InboxEntry:
    """One place of an inbox: a message by reference (`chat`, `cs`), or an event's `body`."""

    seq: Seq
    chat: ChatId | None
    cs: Seq
    body: bytes | None


@dataclasses.dataclass(frozen=True, slots=True)
class InboxState:
    """Where a user's inbox stands."""

    epoch: Epoch  # of the whole hot tier, as devices are told
    head: Seq
    first: Seq  # oldest seq held; head + 1 when it holds none
    is_known: bool  # the box was filled from the directory in this epoch


@dataclasses.dataclass(frozen=True, slots=True)
class BoxChat:
    """A chat as one user stands to it."""

    chat: ChatId
    top: Seq  # newest seq of the chat
    read: Seq
    received: Seq
    order: Ts  # of the newest message, or of the listing: newer activity is higher


@dataclasses.dataclass(frozen=True, slots=True)
class ListedChat:
    """A chat of the directory as one member stands to it."""

    chat: ChatId
    read: Seq
    received: Seq
    since: Seq | None = None  # of a large chat: above it its entries are the member's
    version: int = 0  # of the chat, when this was so


@dataclasses.dataclass(frozen=True, slots=True)
class LargePlace:
    """Since when a chat is a large one for a user, and until when it was."""

    told: Seq  # place of the user's inbox that says so; 0: of before the inbox
    since: Seq  # chat seq: what lies above it comes from the log
    until: Seq | None = None  # chat seq: what lies above it does not, again


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """Up to which chat seq a user is to be served, and from where on."""

    user: UserId
    chat: ChatId
    after: Seq
    upto: Seq
    epoch: Epoch  # of the chat


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """What became of an append to one inbox."""

    user: UserId
    appended: int
    seq: Seq  # newest seq of the inbox
    gateways: tuple[GatewayId, ...]  # where the user is online


@dataclasses.dataclass(frozen=True, slots=True)
class MarkResult:
    """Where a user's marks stand, and whether they moved."""

    is_moved: bool
    read: Seq
    received: Seq
