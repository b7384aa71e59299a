"""Types of membership changes: the change, its entries in the chat, and the chat's head.

`chatserver.domain.membership_rules` decides which changes are allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId, Mid, Ref, Seq, UserId


class ChangeEntry(NamedTuple):
    """A chat entry that records a part of a change.

    `user` is empty if the entry is about the chat itself. `role` is the role after the change;
    empty if the user is no longer a member. `is_new`: the user was not a member before the change.
    """

    user: str
    role: str
    is_new: bool
    tail: bytes  # the entry's JSON without seq and ts
    mid: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MembershipChange:
    """A change committed to the `directory` table. The fields hold the values after the change.

    `sender`, `ref`, `mid` (of the first entry) and `digest` identify the request. `large` is the
    chat version at which the chat became large, or 0 if the chat is small. `transition` is "up" if
    this change makes the chat large, "down" if it makes the chat small. All entries get seqs above
    `after`. `is_repeat`: Redis lost the entries, so they are created again, possibly after later
    entries.
    """

    chat: ChatId
    version: int
    name: str
    history: str
    sender: UserId
    ref: Ref
    mid: Mid
    digest: str
    entries: Sequence[ChangeEntry]
    large: int = 0
    transition: str = ""
    after: int = 0
    is_repeat: bool = False
    picture: str = ""

    @property
    def newcomers(self) -> dict[UserId, int]:
        """The users who become members, and the index of each user's entry in `entries`."""
        return {
            UserId(entry.user): index
            for index, entry in enumerate(self.entries)
            if entry.is_new and entry.role
        }


class ChangePosition(NamedTuple):
    """Seq of a change's first entry in the chat.

    `is_checked`: the join and leave seqs in the `directory` table are known to be correct. False if
    the chat was loaded into Redis after the change, or the change was applied again. In both
    cases, the change's entries may have seqs that differ from those in the table.
    """

    first: Seq
    is_checked: bool


class ReferenceRecord(NamedTuple):
    """Result of looking up a client reference in Redis.

    `digest` is the digest of the earlier request with this reference, or None if none was found.
    `is_open`: the chat is loaded, so a `digest` of None means that the reference has never been
    used or has expired. After a data loss in Redis, only references of the newest 100 messages are
    found.
    """

    is_open: bool
    digest: str | None


class ChangedChatHead(NamedTuple):
    """A chat's newest seq, the seq up to which it is stored, and its latest membership changes.

    `positions` maps the chat version of each of these changes to its first entry.
    """

    seq: Seq
    stored: Seq
    positions: dict[int, ChangePosition]
    joined: dict[UserId, Seq]  # requested users who are members → seq at which they joined

    def is_stored(self, change: MembershipChange) -> bool:
        """Return whether all entries of a change are stored in the warm tier."""
        position = self.positions.get(change.version)
        return position is not None and position.first + len(change.entries) - 1 <= self.stored
