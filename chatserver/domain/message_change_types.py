"""Message changes (edit, delete, reaction) and the outcome of committing them. No I/O."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Final, Self

from chatserver.domain.ids import ChatId, Mid, Ref, Seq, UserId


@dataclasses.dataclass(frozen=True, slots=True)
class MessageChange:
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
    target_ref: str = ""  # `ref` of the message; empty: change whichever message has the seq
    # True if `target` is in a period of an earlier membership of the sender.
    is_of_earlier_period: bool = False


class ChangeOutcome(enum.Enum):
    """Outcome of a commit; the values match `commit_change.lua`."""

    COMMITTED = 1
    KNOWN = 3
    CLOSED = 4  # the chat is not loaded in Redis
    NOT_MEMBER = 5
    ELSEWHERE = 7  # `target` is not in the hot tier
    FORBIDDEN = 8
    DELETED = 9
    REACTIONS_FULL = 10
    NO_MESSAGE = 11  # or another message has the seq
    RESTRICTED = 12  # the sender is not allowed to write


class Hide(enum.Enum):
    """Result of deleting a message for oneself; the values match `hide_message.lua`."""

    KNOWN = 0  # already hidden
    NEW = 1
    STORED = 3  # already hidden, and stored in the `directory` table


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeResult:
    """Result of committing a change.

    `seq` is the chat seq of the change. For `ELSEWHERE`, it is the chat's newest seq; for
    `DELETED`, that of the change that deleted the message, 0 if the message expired; for
    `RESTRICTED`, a value of `chatserver.domain.write_restrictions.WriteRestriction`. `size_bytes`
    is the size of the changed message in Redis.
    """

    outcome: ChangeOutcome
    seq: int = 0
    ts: int = 0
    record: bytes = b""
    size_bytes: int = 0


class HiddenSeqs(frozenset[int]):
    """Seqs of a chat's messages that are hidden from a user; the value -n hides seqs 1 to n."""

    upto: int

    def __new__(cls, seqs: Iterable[int] = ()) -> Self:
        hidden = super().__new__(cls, seqs)
        hidden.upto = max(0, -min(hidden, default=0))
        return hidden

    def __contains__(self, seq: object) -> bool:
        return super().__contains__(seq) or (isinstance(seq, int) and 0 < seq <= self.upto)

    @property
    def single(self) -> list[int]:
        """The seqs that were hidden one by one."""
        return [seq for seq in self if seq > self.upto]


NOTHING_HIDDEN: Final = HiddenSeqs()
