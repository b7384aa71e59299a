"""Membership and settings changes of a group, in the form applied to Redis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId, Mid, Ref, Seq, UserId


class ChangeEntry(NamedTuple):
    """A chat entry that records a part of a change.

    `user` is empty if the entry is about the chat itself. `role` is empty if the user is not a
    member afterward. `is_new`: the user was not a member before.
    """

    user: str
    role: str
    is_new: bool
    tail: bytes  # the entry's JSON without seq and ts
    mid: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MembershipChange:
    """A change committed to the `directory` table; its values are those after the change.

    `sender`, `ref`, `mid` (of the first entry) and `digest` identify the request. `large` is the
    version with which the chat became large, 0 if it is small afterward; `transition` is "up" or
    "down" if it becomes large or small with this change. All entries have seqs above `after`.
    `is_repeat`: Redis lost the entries and they are created again, possibly after later ones.
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

    @property
    def newcomers(self) -> dict[UserId, int]:
        """The users who become members, with the index of their entry."""
        return {
            UserId(entry.user): index
            for index, entry in enumerate(self.entries)
            if entry.is_new and entry.role
        }


class ChangePlace(NamedTuple):
    """Position of a change's entries; `is_checked`: the `directory` table has the joins' seqs."""

    first: Seq
    is_checked: bool


class FoundReference(NamedTuple):
    """Lookup of a client reference in Redis.

    `digest` is the digest of the request with this reference; None if it was not found. If
    `is_open`, the chat is loaded. Then None means that the reference was never used, has expired,
    or, after a data loss in Redis, belongs to a message that is not among the newest 100.
    """

    is_open: bool
    digest: str | None


class ChangedChatHead(NamedTuple):
    """A chat and its last changes in Redis, by version, read at one moment."""

    seq: Seq
    stored: Seq
    places: dict[int, ChangePlace]
    joined: dict[UserId, Seq]  # of those requested users who are members

    def is_stored(self, change: MembershipChange) -> bool:
        """Return whether all entries of a change are stored."""
        place = self.places.get(change.version)
        return place is not None and place.first + len(change.entries) - 1 <= self.stored
