"""Events that a client delivers to the application, in order.

Guarantees, per chat: each entry is delivered once, in ascending chat seq without a gap. If entries
could not be read, `Skipped` is delivered first. After a `Restarted` in another epoch, entries that
no longer exist are `EntriesWithdrawn`, and their replacements are delivered as new.
"""

from __future__ import annotations

import dataclasses

from chatserver.client.model import Entry
from chatserver.errors import ChatError


@dataclasses.dataclass(frozen=True, slots=True)
class Connected:
    """The server accepted the connection; missed events follow."""

    user: str


@dataclasses.dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is closed; the client reconnects automatically after `retry_in_s`."""

    reason: str
    retry_in_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message was added."""

    chat: str
    message: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class MessageChanged:
    """A message was edited, deleted or reacted to; `message` is None if it is not kept locally."""

    chat: str
    change: Entry
    message: Entry | None


@dataclasses.dataclass(frozen=True, slots=True)
class MessagesHidden:
    """We deleted messages for ourselves, on this device or another."""

    chat: str
    seqs: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member joined, left or got another role: `change.user`, `change.role` ("" if they left)."""

    chat: str
    change: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class ChatChanged:
    """A chat is new, or its name or settings changed. `change` is the log entry, if any."""

    chat: str
    change: Entry | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PinsChanged:
    """A message was pinned or unpinned: `change.kind` is "pin" or "unpin", of `change.target`."""

    chat: str
    change: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class Marked:
    """A member's markers in a chat advanced, other than by sending a message."""

    chat: str
    user: str
    read: int
    received: int


@dataclasses.dataclass(frozen=True, slots=True)
class SignalReceived:
    """An ephemeral signal, such as typing or presence; `fields` has its other frame fields."""

    kind: str
    sender: str
    chat: str | None
    fields: dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerGrew:
    """A companion's response to the message at `seq` grew by `added`; `text` is the text so far.

    If too many events are queued, it is dropped, because the next one has the complete `text`.
    `end` is empty until the response ends; its message is delivered as `MessageAdded`. Another
    `turn` (response id) for the same message replaces the text of the previous one.
    """

    chat: str
    seq: int
    turn: str
    added: str
    text: str
    end: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Acked:
    """The operation with this `ref` is committed. Delivered once for each ref."""

    ref: str
    chat: str
    seq: int
    ts: int
    mid: str
    dup: bool
    durability: str


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The operation with this `ref` is refused permanently or, in a companion chat, for minutes.

    After an `Acked`, it means that the message may be lost: the server will not confirm that it is
    stored, because we have left the chat.
    """

    ref: str
    chat: str
    error: ChatError


@dataclasses.dataclass(frozen=True, slots=True)
class StoredUpto:
    """All our messages to the chat up to this seq are stored in DynamoDB."""

    chat: str
    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class Restarted:
    """The chat list was reloaded from a snapshot, after a long time offline or data loss in Redis.

    The client loads missing entries of chats for which it has delivered entries. `chats` have
    entries that were never delivered; load them with `history`.
    """

    is_new_epoch: bool
    chats: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """Entries after `after` up to `upto` are not delivered: too many, or not readable."""

    chat: str
    after: int
    upto: int


@dataclasses.dataclass(frozen=True, slots=True)
class EntriesWithdrawn:
    """Delivered entries no longer exist: Redis lost them before they were stored.

    Entries after `after` are delivered again.
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
    | PinsChanged
    | Marked
    | SignalReceived
    | AnswerGrew
    | Acked
    | Refused
    | StoredUpto
    | Restarted
    | Skipped
    | EntriesWithdrawn
)
