"""Changes to the message cache, in the order in which the client received them. No I/O.

An event that is a change itself is used as it is: cached copies of `Skipped` entries may be
outdated, and the server lost the entries of `EntriesWithdrawn`.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.client.events import ChatCleared, EntriesWithdrawn, MessagesHidden, Skipped
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
    | MessagesHidden
    | ChatCleared
    | Skipped
    | EntriesWithdrawn
    | ChatDropped
    | ChatsUnverified
)
