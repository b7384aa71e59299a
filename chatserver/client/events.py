"""What a client tells the application, in order.

Guarantees, per chat: an entry is told once, in rising chat seq without a gap; where something could
not be read, `Skipped` says so first. After a `Restarted` in another epoch, entries that are no
longer there are `Withdrawn`, and what came in their place is told as new.
"""

from __future__ import annotations

import dataclasses

from chatserver.client.model import Entry
from chatserver.errors import ChatError


@dataclasses.dataclass(frozen=True, slots=True)
class Connected:
    """The server knows us; what was missed follows."""

    user: str


@dataclasses.dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is over; the client comes back by itself after `retry_in_s`."""

    reason: str
    retry_in_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message."""

    chat: str
    message: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class MessageChanged:
    """A message was edited, deleted or reacted to; `message` is None if it is not kept here."""

    chat: str
    change: Entry
    message: Entry | None


@dataclasses.dataclass(frozen=True, slots=True)
class MessagesHidden:
    """We deleted messages for ourselves, here or on another device."""

    chat: str
    seqs: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class MemberChanged:
    """Somebody came, left or got another role: `change.user`, `change.role`, "" for none."""

    chat: str
    change: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class ChatChanged:
    """A chat is new, or has another name or other settings. `change` if that has a place in it."""

    chat: str
    change: Entry | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Marked:
    """A member has read and received a chat further. Who writes has read, without a `Marked`."""

    chat: str
    user: str
    read: int
    received: int


@dataclasses.dataclass(frozen=True, slots=True)
class Signalled:
    """Something of the moment: `kind` typing or presence, and the frame's other fields."""

    kind: str
    sender: str
    chat: str | None
    fields: dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerGrew:
    """A companion said more in answer to the message at `seq`: `added`, so that it is `text` now.

    Left out, as signals are, where too much waits to be taken: `text` is always right.

    `end` is empty until it ends; the message itself is a `MessageAdded`. Another `turn` for the
    same message begins anew, and what was told of the one before is no longer true.
    """

    chat: str
    seq: int
    turn: str
    added: str
    text: str
    end: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Acked:
    """What was sent under `ref` is committed. Told once for each ref."""

    ref: str
    chat: str
    seq: int
    ts: int
    mid: str
    dup: bool
    durability: str


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The send under `ref` is refused for good or, to a companion, for minutes.

    After an `Acked`: the message may be lost, and the server will not say; we have left the chat.
    """

    ref: str
    chat: str
    error: ChatError


@dataclasses.dataclass(frozen=True, slots=True)
class StoredUpto:
    """All that we sent to the chat up to a seq is in the warm tier."""

    chat: str
    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class Restarted:
    """We were away too long, or the hot tier was lost: the chat list is from a snapshot.

    The client reads what is missing in chats that it follows. In `chats` there is something that
    it was never told of: `history` reads it.
    """

    is_new_epoch: bool
    chats: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """Entries after `after` and up to `upto` will not be told: too many, or not readable."""

    chat: str
    after: int
    upto: int


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawn:
    """Entries that were told are not there: Redis went back in time before they were stored.

    What stands after `after` is told anew.
    """

    chat: str
    seqs: tuple[int, ...]
    after: int


Event = (
    Connected
    | Disconnected
    | MessageAdded
    | MessageChanged
    | MessagesHidden
    | MemberChanged
    | ChatChanged
    | Marked
    | Signalled
    | AnswerGrew
    | Acked
    | Refused
    | StoredUpto
    | Restarted
    | Skipped
    | Withdrawn
)
