"""What the server says, as far as the load tool looks at it. Other fields are passed over.

Declared here and not taken from `protocol.frames`: an event of which only this is decoded takes
half of the time (1.3 µs, not 2.7), and the tool's own time is what bounds the load it can make.
"""

from __future__ import annotations

import msgspec


class Heard(msgspec.Struct, tag_field="type", gc=False):
    """Anything the server says."""


class Message(msgspec.Struct, gc=False):
    """An entry of a chat, in an event or on a page."""

    seq: int
    sender: str
    ref: str
    kind: str
    body: str


class Event(Heard, tag="event", gc=False):
    """Something in the user's inbox, or (`seq` 0) in a large chat."""

    epoch: str
    seq: int
    kind: str
    chat: str
    cs: int = 0
    message: Message | None = None


class Ack(Heard, tag="ack", gc=False):
    """A message has its place."""

    id: int
    seq: int
    dup: bool


class Cursor(msgspec.Struct, gc=False):
    """A place in the inbox."""

    epoch: str
    seq: int


class Limits(msgspec.Struct, gc=False):
    """The bounds that matter to a sender."""

    sends_in_flight_max: int = 64


class LargeChat(msgspec.Struct, gc=False):
    """A chat without inboxes."""

    chat: str
    seq: int


class Welcome(Heard, tag="welcome", gc=False):
    """The session is there."""

    epoch: str
    seq: int
    limits: Limits
    large: list[LargeChat] = []


class ChatInfo(msgspec.Struct, gc=False):
    """A chat that was opened."""

    chat: str


class Ok(Heard, tag="ok", gc=False):
    """A request was done."""

    id: int
    chat: ChatInfo | None = None


class Page(Heard, tag="page", gc=False):
    """A page of history."""

    id: int
    messages: list[Message] = []
    tier: str = ""
    more: bool = False


class Refusal(Heard, tag="error", gc=False):
    """A request failed."""

    code: str
    message: str
    temporary: bool = False
    id: int | None = None
    retry_after_ms: int = 1000


class TooLong(Heard, tag="too_long", gc=False):
    """The inbox does not have all that was missed."""

    cursor: Cursor


class Reset(Heard, tag="reset", gc=False):
    """The cursor means nothing any more."""

    cursor: Cursor


class Bye(Heard, tag="bye", gc=False):
    """The server is about to close."""

    code: int
    reason: str
    retry_after_ms: int | None = None


class Stored(Heard, tag="stored", gc=False):
    """Messages reached DynamoDB."""


class Signal(Heard, tag="signal", gc=False):
    """Of the moment."""


AnyHeard = Event | Ack | Welcome | Ok | Page | Refusal | TooLong | Reset | Bye | Stored | Signal
decode = msgspec.json.Decoder(AnyHeard).decode
encode = msgspec.json.Encoder().encode
