"""Values of inboxes and user states. The adapter is `chatserver.hot.users.inbox`."""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts, UserId


@dataclasses.dataclass(frozen=True, slots=True)
class InboxEntry:
    """An inbox entry: a message by reference (`chat`, `cs`), or an event's `body`."""

    seq: Seq
    chat: ChatId | None
    cs: Seq
    body: bytes | None


@dataclasses.dataclass(frozen=True, slots=True)
class InboxState:
    """The state of a user's inbox."""

    epoch: Epoch  # of the whole hot tier, as sent to devices
    head: Seq
    first: Seq  # oldest seq held; head + 1 when it is empty
    is_known: bool  # the user state was loaded from the `directory` table in this epoch


@dataclasses.dataclass(frozen=True, slots=True)
class UserChat:
    """A chat in the user state (Redis) of one user."""

    chat: ChatId
    top: Seq  # newest seq of the chat
    read: Seq
    received: Seq
    order: Ts  # ts of the newest message or of the listing; the chat list is sorted by it
    stored: int = 0  # newest seq in the warm tier, if the chat is in Redis


@dataclasses.dataclass(frozen=True, slots=True)
class ListedChat:
    """A member's listing of a chat in the `directory` table."""

    chat: ChatId
    read: Seq
    received: Seq
    since: Seq | None = None  # of a large chat: the member may read entries above it
    version: int = 0  # version of the chat at that time


@dataclasses.dataclass(frozen=True, slots=True)
class LargePeriod:
    """Range of chat seqs that a user reads from the log of a large chat, not from the inbox."""

    notice: Seq  # inbox seq of the notification; 0: from before the inbox
    since: Seq  # chat seq: later entries come from the log
    until: Seq | None = None  # chat seq: later entries come from the inbox again


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """A range of chat seqs to deliver to a user."""

    user: UserId
    chat: ChatId
    after: Seq
    upto: Seq
    epoch: Epoch  # of the chat


@dataclasses.dataclass(frozen=True, slots=True)
class AppendResult:
    """Result of an append to one inbox."""

    user: UserId
    appended: int
    seq: Seq  # newest seq of the inbox
    gateways: tuple[GatewayId, ...]  # gateways to which the user is connected


@dataclasses.dataclass(frozen=True, slots=True)
class MarkResult:
    """A user's read and received marks (chat seqs), and whether they moved."""

    is_moved: bool
    read: Seq
    received: Seq
