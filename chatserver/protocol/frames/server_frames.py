"""Frames of the core that the server sends: replies, events and signals."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from chatserver.protocol.frames.fields import Cursor, raw_list
from chatserver.protocol.frames.values import (
    BlockedUser,
    ChatInfo,
    ChatSummary,
    InvitationInfo,
    LargeChat,
    Limits,
    Marks,
    Message,
)


class ServerFrame(msgspec.Struct, tag_field="type", frozen=True, omit_defaults=True):
    """Base class of server frames."""


class Welcome(ServerFrame, tag="welcome", frozen=True, omit_defaults=False):
    """Response to `hello`. `seq` is the newest seq of the inbox in `epoch`."""

    session: str
    user: str
    epoch: str
    seq: int
    heartbeat_ms: int
    limits: Limits
    large: list[LargeChat]


class Event(ServerFrame, tag="event", frozen=True):
    """An event in the user's inbox, at inbox position `seq`.

    Kind `read` sets `read`, `chat` sets `info`, and `hidden` sets `hidden`. Every other kind sets
    `message`; `cs` is then the message's position in the chat.
    """

    epoch: str
    seq: int
    kind: Literal[
        "message",
        "edit",
        "delete",
        "reaction",
        "member",
        "update",
        "pin",
        "unpin",
        "read",
        "chat",
        "hidden",
    ]
    chat: str
    cs: int = 0
    message: Message | UnsetType = UNSET
    read: Marks | UnsetType = UNSET
    info: ChatInfo | UnsetType = UNSET
    hidden: list[int] | UnsetType = UNSET


class Signal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """A typing signal. Signals are never stored, and are dropped if the client reads too slowly."""

    kind: Literal["typing"]
    chat: str
    from_: str = msgspec.field(name="from")
    on: bool


class InvitationSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user was invited to a group; request `invitations` again."""

    kind: Literal["invitation"]
    chat: str
    from_: str = msgspec.field(name="from")


class PresenceSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """A user's presence. `last_seen` (Unix µs) is set for an offline user, if known."""

    kind: Literal["presence"]
    from_: str = msgspec.field(name="from")
    state: Literal["online", "away", "offline"]
    last_seen: int | UnsetType = UNSET


class Ack(ServerFrame, tag="ack", frozen=True, omit_defaults=False):
    """A request's entry is committed. `dup`: an earlier request with this `ref` committed it."""

    id: int
    ref: str
    mid: str
    seq: int
    ts: int
    dup: bool
    durability: Literal["hot", "stored"]


class Stored(ServerFrame, tag="stored", frozen=True):
    """All of the user's messages in `chat` up to seq `upto` are in the warm tier."""

    chat: str
    upto: int


class Ok(ServerFrame, tag="ok", frozen=True):
    """The request succeeded. `chat` is set if the request was about a chat."""

    id: int
    chat: ChatInfo | None = None


class EventPage(ServerFrame, tag="page", frozen=True, omit_defaults=False):
    """Response to `sync`."""

    id: int
    events: Annotated[list[msgspec.Raw], raw_list(Event)]
    cursor: Cursor
    more: bool


class HistoryPage(ServerFrame, tag="page", frozen=True, omit_defaults=False):
    """Response to `history`: contiguous messages, in order of seq.

    `tier` is the coldest tier read: ``hot``, ``warm`` or ``cold``. `stored` is the chat seq up to
    which the warm tier has stored the chat. `marks` has the members' read marks, but only on the
    newest page of a chat with up to 32 members.
    """

    id: int
    chat: str
    messages: Annotated[list[msgspec.Raw], raw_list(Message)]
    tier: Literal["hot", "warm", "cold"]
    more: bool
    stored: int = 0
    marks: list[Marks] = []


class ChatsPage(ServerFrame, tag="page", frozen=True):
    """Response to `chats`. `next` is the `after` for the next page, absent on the last page."""

    id: int
    chats: list[ChatSummary]
    more: bool
    next: str | None = None


class BlocksPage(ServerFrame, tag="page", frozen=True):
    """Response to `blocks`."""

    id: int
    blocked: list[BlockedUser]
    more: bool
    next: str | None = None


class InvitationsPage(ServerFrame, tag="page", frozen=True):
    """Response to `invitations`. A page with `next` may have fewer than `limit`, or none."""

    id: int
    invitations: list[InvitationInfo]
    more: bool
    next: str | None = None


class TooLong(ServerFrame, tag="too_long", frozen=True):
    """The hot tier no longer has all missed events. Start from this snapshot.

    `large` lists large chats, as in `welcome`.
    """

    cursor: Cursor
    chats: list[ChatSummary]
    id: int | None = None
    large: list[LargeChat] = []


class Reset(ServerFrame, tag="reset", frozen=True):
    """The cursor is from another epoch, or ahead of the inbox. Start from this snapshot.

    `large` lists large chats, as in `welcome`.
    """

    cursor: Cursor
    chats: list[ChatSummary]
    id: int | None = None
    large: list[LargeChat] = []


class Error(ServerFrame, tag="error", frozen=True, omit_defaults=False):
    """A request failed. `temporary`: a retry after `retry_after_ms` may succeed.

    `ref`: that of the request, if it has one.
    """

    code: str
    message: str
    temporary: bool
    id: int | UnsetType = UNSET
    ref: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class Bye(ServerFrame, tag="bye", frozen=True, omit_defaults=False):
    """Sent before the server closes the connection."""

    code: int
    reason: str
    retry_after_ms: int | UnsetType = UNSET
