"""Inbox and user state values. The adapter is `chatserver.hot.users.inbox`."""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts, UserId


@dataclasses.dataclass(frozen=True, slots=True)
class InboxEntry:
    """An inbox entry: a reference to a message (`chat`, chat seq `cs`), or an event's `body`."""

    seq: Seq
    chat: ChatId | None
    cs: Seq
    body: bytes | None


@dataclasses.dataclass(frozen=True, slots=True)
class InboxState:
    epoch: Epoch  # the epoch that devices receive; covers all partitions (`HotClient.whole_epoch`)
    head: Seq
    first: Seq  # oldest seq in the inbox; head + 1 if the inbox is empty
    is_known: bool  # True if the user state has been loaded in this epoch


@dataclasses.dataclass(frozen=True, slots=True)
class UserChat:
    """A user's chat, as stored in the user state in Redis."""

    chat: ChatId
    top: Seq  # newest seq of the chat
    read: Seq
    received: Seq
    order: Ts  # sort key of the chat list: ts of the newest message, or when the user was added
    stored: int = 0  # newest seq in the warm tier; 0 if Redis does not have the chat


@dataclasses.dataclass(frozen=True, slots=True)
class ListedChat:
    """A chat in a member's chat list, as stored in the `directory` table."""

    chat: ChatId
    read: Seq
    received: Seq
    since: Seq | None = None  # large chat: entries above this seq are read from the log
    version: int = 0  # version of the chat when `since` was read


@dataclasses.dataclass(frozen=True, slots=True)
class LargePeriod:
    """A period in which a chat was large, so that users read its entries from the chat's log."""

    notice: Seq  # inbox seq of the last event about this period; 0 if no longer in the inbox
    since: Seq  # entries above this chat seq are read from the log
    until: Seq | None = None  # entries above this chat seq are in the inbox again


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """A range of chat seqs to deliver to a user."""

    user: UserId
    chat: ChatId
    after: Seq
    upto: Seq
    epoch: Epoch  # epoch of the chat


@dataclasses.dataclass(frozen=True, slots=True)
class AppendResult:
    """Result of an append to one inbox."""

    user: UserId
    appended: int  # number of appended entries
    seq: Seq  # newest seq of the inbox
    gateways: tuple[GatewayId, ...]  # gateways to which the user is connected


@dataclasses.dataclass(frozen=True, slots=True)
class UserMarks:
    """A user's read and received marks in a chat, as chat seqs.

    If Redis does not have the chat (`is_open` is false), no mark can be moved, and the user's own
    newest message, which counts as read, is unknown.
    """

    read: Seq
    received: Seq
    is_open: bool = True
