"""Where a message is, as values: what `chatserver trace` tells. Never what it says.

None stands for what is not known, because a tier did not answer or has nothing of it; why, is among
the `problems`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId

Source = Literal["backlog", "hot", "warm", "marker", "cold"]


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The place of a message, and where that was read."""

    chat: ChatId
    seq: Seq
    ts: Ts
    sender: str
    kind: str
    source: Source


@dataclasses.dataclass(frozen=True, slots=True)
class InHot:
    """What Redis has of a message and its chat."""

    is_open: bool  # the chat is in Redis, in this epoch
    head: int  # newest seq of the chat
    stored: int  # up to which seq the chat is persisted
    served: int  # up to which seq every inbox was served
    is_large: bool  # no inboxes: the log is everybody's
    is_in_log: bool
    undelivered_since_ms: int | None  # of the chat: somebody has still to be served or told
    gateways: int  # of a large chat: those that watch it


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """An entry of the backlog, or a dead letter: not in the warm tier."""

    place: str  # partition:entry
    since_ms: int
    why: str  # of a dead letter


@dataclasses.dataclass(frozen=True, slots=True)
class Recipient:
    """A member, and how far the message has come to him."""

    user: UserId
    joined: int
    is_sender: bool
    inbox: int | None  # its place in his inbox; None: not there, or there no longer
    has_received: bool | None  # one of his devices said so
    has_read: bool | None
    gateways: int | None  # on which he is online, now


@dataclasses.dataclass(frozen=True, slots=True)
class InWarm:
    """The item of a message, or the marker that is left of it."""

    partition: str
    is_marker: bool
    rev: int
    is_deleted: bool
    edited_seq: int | None
    reactions: int
    attachments: int
    expires_at: int | None  # seconds since 1970
    ttl: int | None  # seconds since 1970: from then on TTL may remove it
    restored_until: int | None
    body: Literal["inline", "object", "none"]
    body_bytes: int
    body_key: str | None
    checksum: str  # right, wrong or unverified


@dataclasses.dataclass(frozen=True, slots=True)
class InCold:
    """The segment that holds a message."""

    key: str
    first: int
    last: int
    stored_bytes: int
    sha256: str
    checksum: Literal["right", "wrong", "unread"]  # of the object in the bucket


@dataclasses.dataclass(slots=True)
class Trace:
    """All that is known of a message."""

    mid: Mid
    made_ms: int
    trace_id: str
    found: Found
    hot: InHot | None = None
    waiting: Waiting | None = None
    members: int | None = None
    recipients: list[Recipient] = dataclasses.field(default_factory=list)
    warm: InWarm | None = None
    archived_upto: int | None = None
    cold: InCold | None = None
    held_since_ms: int | None = None
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_persisted(self) -> bool | None:
        """Whether the warm or the cold tier has it; None: not known."""
        if self.warm is not None or self.cold is not None:
            return True
        if self.hot is not None and self.hot.is_open:
            return self.hot.stored >= self.found.seq
        return False if self.waiting is not None else None
