"""Events that a client delivers to the application, in order.

Guarantees, per chat: each entry is delivered once, in ascending chat seq without a gap. If entries
could not be read, `Skipped` is delivered first. After a `Restarted` in another epoch, entries that
no longer exist are reported as `EntriesWithdrawn`, and their replacements are delivered as new.
"""

from __future__ import annotations

import msgspec

from chatserver.client.model import Entry
from chatserver.errors import ChatError


class _Event(msgspec.Struct, frozen=True, tag=True):
    """Base of all events."""


class Connected(_Event, frozen=True):
    """The server accepted the connection; missed events follow."""

    user: str


class Disconnected(_Event, frozen=True):
    """The connection is closed; the client reconnects automatically after `retry_in_s`."""

    reason: str
    retry_in_s: float


class MessageAdded(_Event, frozen=True):
    """A message was added."""

    chat: str
    message: Entry


class MessageChanged(_Event, frozen=True):
    """A message was edited, deleted or reacted to; `message` is None if it is not in memory."""

    chat: str
    change: Entry
    message: Entry | None


class MessagesHidden(_Event, frozen=True):
    """The user deleted messages only for themselves, on this device or another."""

    chat: str
    seqs: tuple[int, ...]


class ChatCleared(_Event, frozen=True):
    """The user cleared a chat up to seq `upto`, on any device. Do not show these entries.

    This event is not repeated after a crash; `Chat.cleared_upto` has the position.
    """

    chat: str
    upto: int


class MemberChanged(_Event, frozen=True):
    """`change.user` joined, left or got another role: `change.role`, "" if the user left."""

    chat: str
    change: Entry


class ChatChanged(_Event, frozen=True):
    """A chat is new, or its name or settings changed. `change` is the log entry, if any."""

    chat: str
    change: Entry | None = None


class PinsChanged(_Event, frozen=True):
    """Message `change.target` was pinned or unpinned: `change.kind` is "pin" or "unpin"."""

    chat: str
    change: Entry


class Marked(_Event, frozen=True):
    """A member's read or received mark in a chat advanced, other than by sending a message."""

    chat: str
    user: str
    read: int
    received: int


class SignalReceived(_Event, frozen=True):
    """A signal (typing, presence; never stored). `fields` are the frame's other fields."""

    kind: str
    sender: str
    chat: str | None
    fields: dict[str, object]


class ResponseUpdated(_Event, frozen=True):
    """An AI companion's response to message `seq` grew by `added`; `text` is the text so far.

    Some of these events may be dropped; the next one has the complete `text`. `end` is empty until
    the response ends. The complete response is also delivered as `MessageAdded`. A new `turn`
    (response id) for the same message replaces the text. `tool`: the model is using this tool.
    """

    chat: str
    seq: int
    turn: str
    added: str
    text: str
    end: str = ""
    tool: str = ""


class Acked(_Event, frozen=True):
    """The operation with this `ref` has been committed. Delivered once for each ref."""

    ref: str
    chat: str
    seq: int
    ts: int
    mid: str
    dup: bool
    durability: str


class Refused(_Event, frozen=True):
    """The operation with this `ref` was refused and will not be retried.

    If an `Acked` with this `ref` came first, Redis may have lost the operation. It cannot be
    repeated, because the user has left the chat or the message to change is lost, too.
    """

    ref: str
    chat: str
    error: ChatError


class StoredUpto(_Event, frozen=True):
    """All operations from this device in the chat, up to this seq, are stored in DynamoDB."""

    chat: str
    seq: int


class Restarted(_Event, frozen=True):
    """The chat list was reloaded from a snapshot, after a long time offline or data loss in Redis.

    In chats with delivered entries, the client loads the missing entries itself. `chats` lists the
    other chats that have entries; load these with `history`.
    """

    is_new_epoch: bool
    chats: tuple[str, ...]


class Skipped(_Event, frozen=True):
    """Entries after seq `after`, up to `upto`, are skipped: too many, or unreadable."""

    chat: str
    after: int
    upto: int


class EntriesWithdrawn(_Event, frozen=True):
    """The delivered entries `seqs` no longer exist: Redis lost them before they were stored.

    The entries that now follow seq `after` are delivered as new.
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
    | ChatCleared
    | MemberChanged
    | ChatChanged
    | PinsChanged
    | Marked
    | SignalReceived
    | ResponseUpdated
    | Acked
    | Refused
    | StoredUpto
    | Restarted
    | Skipped
    | EntriesWithdrawn
)
