"""Changes to the message cache, in the order in which the client received them. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from chatserver.client.model import Entry


class Delivered(NamedTuple):
    """The next entry of a chat, delivered in order."""

    chat: str
    entry: Entry


class PageRead(NamedTuple):
    """A page of history from the server: the newest page if `before` and `after` are None."""

    chat: str
    entries: tuple[Entry, ...]
    before: int | None
    after: int | None
    has_more: bool


class Hidden(NamedTuple):
    """Messages that the user deleted for themselves."""

    chat: str
    seqs: tuple[int, ...]


class Cleared(NamedTuple):
    """The user has cleared the chat up to seq `upto`."""

    chat: str
    upto: int


class EntriesSkipped(NamedTuple):
    """Entries up to `upto` were missed; cached copies of them may be outdated."""

    chat: str
    upto: int


class EntriesLost(NamedTuple):
    """The server lost the entries above `after`."""

    chat: str
    after: int


class ChatDropped(NamedTuple):
    """The user can no longer read the chat."""

    chat: str


class ChatsUnverified(NamedTuple):
    """Cached entries of `chats` (None: all except `verified`) may differ from the server's.

    Entries cached from now on are from `epoch` (None: the epoch is unchanged).
    """

    chats: frozenset[str] | None = None
    verified: frozenset[str] = frozenset()
    epoch: str | None = None


Change = (
    Delivered
    | PageRead
    | Hidden
    | Cleared
    | EntriesSkipped
    | EntriesLost
    | ChatDropped
    | ChatsUnverified
)
