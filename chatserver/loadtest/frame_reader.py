"""Server frames, reduced to the fields that the load tool uses. Other fields are ignored.

This module does not use `protocol.frames`, because decoding only these fields is twice as fast.
"""

from __future__ import annotations

import msgspec


class ReceivedFrame(msgspec.Struct, tag_field="type", gc=False):
    """Any frame from the server."""


class Message(msgspec.Struct, gc=False):
    """A chat entry, in an event or a history page."""

    seq: int
    sender: str
    ref: str
    kind: str
    body: str


class Event(ReceivedFrame, tag="event", gc=False):
    """An event from the user's inbox, or from a large chat if `seq` is 0."""

    epoch: str
    seq: int
    kind: str
    chat: str
    cs: int = 0
    message: Message | None = None


class Ack(ReceivedFrame, tag="ack", gc=False):
    """A message was committed; `seq` is its position in the chat."""

    id: int
    seq: int
    dup: bool


class Cursor(msgspec.Struct, gc=False):
    """A position in the inbox: epoch and inbox seq."""

    epoch: str
    seq: int


class Limits(msgspec.Struct, gc=False):
    sends_in_flight_max: int = 64


class LargeChat(msgspec.Struct, gc=False):
    """A large chat (its events do not go through the inbox), and its newest seq."""

    chat: str
    seq: int


class Welcome(ReceivedFrame, tag="welcome", gc=False):
    epoch: str
    seq: int
    limits: Limits
    large: list[LargeChat] = []


class ChatInfo(msgspec.Struct, gc=False):
    """A chat that was opened or created."""

    chat: str


class Ok(ReceivedFrame, tag="ok", gc=False):
    id: int
    chat: ChatInfo | None = None


class Page(ReceivedFrame, tag="page", gc=False):
    id: int
    messages: list[Message] = []
    tier: str = ""
    more: bool = False


class Refusal(ReceivedFrame, tag="error", gc=False):
    code: str
    message: str
    temporary: bool = False
    id: int | None = None
    retry_after_ms: int = 1000


class TooLong(ReceivedFrame, tag="too_long", gc=False):
    """The inbox no longer has all missed events."""

    cursor: Cursor


class Reset(ReceivedFrame, tag="reset", gc=False):
    """The cursor is no longer valid."""

    cursor: Cursor


class Bye(ReceivedFrame, tag="bye", gc=False):
    """The server is about to close the connection."""

    code: int
    reason: str
    retry_after_ms: int | None = None


class Stored(ReceivedFrame, tag="stored", gc=False):
    """Messages were stored in DynamoDB."""


class Signal(ReceivedFrame, tag="signal", gc=False):
    """A signal (typing, presence; never stored)."""


AnyFrame = Event | Ack | Welcome | Ok | Page | Refusal | TooLong | Reset | Bye | Stored | Signal
decode = msgspec.json.Decoder(AnyFrame).decode
encode = msgspec.json.Encoder().encode
