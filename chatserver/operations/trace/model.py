"""Trace result of `chatserver trace`: the state of one message in each tier, without its text.

None means unknown: a tier did not respond (see `problems`), or does not have the message.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId

Source = Literal["backlog", "hot", "warm", "marker", "cold"]


class LocatedMessage(msgspec.Struct, frozen=True):
    """A message that was found, and the source from which it was read."""

    chat: ChatId
    seq: Seq
    ts: Ts
    sender: str
    kind: str
    source: Source


class InHot(msgspec.Struct, frozen=True):
    """State of a message and its chat in Redis."""

    is_open: bool  # True: the chat is loaded in Redis, in the current epoch
    head: int  # newest seq in the chat
    stored: int  # newest persisted seq in the chat
    served: int  # newest seq delivered to every inbox
    is_large: bool  # True: members read the chat's log, not an inbox
    is_in_log: bool
    undelivered_since_ms: int | None  # start of the chat's oldest pending delivery
    gateways: int  # number of gateways subscribed to a large chat


class WaitingMessage(msgspec.Struct, frozen=True):
    """Backlog entry or dead letter of a message that is not in the warm tier."""

    entry: str  # format: `<partition>:<entry>`
    since_ms: int
    why: str  # reason, for a dead letter


class Recipient(msgspec.Struct, frozen=True):
    """Delivery state of the message for one member."""

    user: UserId
    joined: int
    is_sender: bool
    inbox: int | None  # position in the inbox; None: not in the inbox, or trimmed
    has_received: bool | None  # whether one of the member's devices has acknowledged it
    has_read: bool | None
    gateways: int | None  # number of gateways where the member has a session


class InWarm(msgspec.Struct, frozen=True):
    """DynamoDB record of a message: its item or, if that has been deleted, its marker."""

    partition: str
    is_marker: bool
    rev: int
    is_deleted: bool
    edited_seq: int | None
    reactions: int
    attachments: int
    expires_at: int | None  # seconds since 1970
    ttl: int | None  # seconds since 1970: TTL can remove the item from then on
    restored_until: int | None
    body: Literal["inline", "object", "none"]
    body_bytes: int
    body_key: str | None
    checksum: str  # right, wrong or unverified


class InCold(msgspec.Struct, frozen=True):
    """The segment that contains a message."""

    key: str
    first: int
    last: int
    stored_bytes: int
    sha256: str
    checksum: Literal["right", "wrong", "unread"]  # whether the object matches `sha256`


class Trace(msgspec.Struct):
    """Everything found about a message."""

    mid: Mid
    made_ms: int
    trace_id: str
    found: LocatedMessage
    hot: InHot | None = None
    waiting: WaitingMessage | None = None
    members: int | None = None
    recipients: list[Recipient] = []
    warm: InWarm | None = None
    archived_upto: int | None = None
    cold: InCold | None = None
    held_since_ms: int | None = None
    problems: list[str] = []

    @property
    def is_persisted(self) -> bool | None:
        """True if the message is in the warm or cold tier; None if unknown."""
        if self.warm is not None or self.cold is not None:
            return True
        if self.hot is not None and self.hot.is_open:
            return self.hot.stored >= self.found.seq
        return False if self.waiting is not None else None
