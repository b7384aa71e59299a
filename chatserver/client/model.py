"""Chat entries, read marks and the size limits of the client SDK."""

from __future__ import annotations

from typing import Any

import msgspec

from chatserver.protocol import frames

Entry = frames.Message  # a chat entry: a message or a change


def parse_entry(fields: dict[str, Any]) -> Entry:
    """Decode an entry from an event or a history page; unknown fields are ignored."""
    return msgspec.convert(fields, Entry)


class Marks(msgspec.Struct, array_like=True):
    """A member's read and received marks in a chat. Both only increase."""

    read: int = 0
    received: int = 0

    def raise_to(self, read: int, received: int) -> bool:
        """Advance the marks; return whether either changed. Read messages count as received."""
        before = (self.read, self.received)
        self.read = max(self.read, read)
        self.received = max(self.received, received, self.read)
        return (self.read, self.received) != before


class Bounds(msgspec.Struct, frozen=True):
    """Size limits of a client, and its behavior at each limit (guarantee P8)."""

    entries_max: int = 1_000  # maximum entries kept per chat; `history` loads older ones again
    fill_max: int = 1_000  # maximum entries per chat loaded after a disconnect
    chats_max: int = 2_000  # maximum chats kept; one more evicts the least recently active chat
    outbox_max: int = 5_000  # maximum operations not stored yet; one more raises `Overloaded`
    requests_max: int = 256  # maximum requests without a response; one more raises `Overloaded`
    marks_max: int = 300  # maximum members per chat whose read marks are kept
    watched_max: int = 500  # maximum presence subscriptions; one more raises `Overloaded`
    events_max: int = 2_000  # maximum events not consumed yet; further events stay on the server
