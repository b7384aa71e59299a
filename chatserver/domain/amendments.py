"""A change of a message on its way: the entry that is to tell of it, what became of it. No I/O."""

from __future__ import annotations

import dataclasses
import enum

from chatserver.domain.ids import ChatId, Mid, Ref, Seq, UserId


@dataclasses.dataclass(frozen=True, slots=True)
class Amendment:
    """An entry that changes the message at `target`."""

    chat: ChatId
    sender: UserId
    ref: Ref
    mid: Mid
    digest: str
    kind: str
    target: Seq
    body: str
    tail: bytes
    is_of_earlier_period: bool = False  # the sender was a member when the message was sent


class Outcome(enum.Enum):
    """What the commit says; the values are those of `amend.lua`."""

    COMMITTED = 1
    KNOWN = 3
    CLOSED = 4  # the chat has to be opened first
    NOT_MEMBER = 5
    ELSEWHERE = 7  # the target is not in the hot tier
    FORBIDDEN = 8
    DELETED = 9
    REACTIONS_FULL = 10
    NO_MESSAGE = 11
    RESTRAINED = 12  # the sender may not write


class Hide(enum.Enum):
    """Result of deleting a message for oneself; values of `hide.lua`."""

    KNOWN = 0  # it was hidden
    NEW = 1
    STORED = 3  # it was hidden, and the directory has it


@dataclasses.dataclass(frozen=True, slots=True)
class Amended:
    """What became of an amendment. `seq` is its place; of `ELSEWHERE`, the chat's head.

    `size_bytes`: of the changed message, which Redis keeps until the change has left the log.
    Of `RESTRAINED` it is the reason, as `chatserver.domain.moderation` counts them.
    """

    outcome: Outcome
    seq: int = 0
    ts: int = 0
    place: bytes = b""
    size_bytes: int = 0
