"""What a client reads of a chat, and how much of it it keeps."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from chatserver.protocol import frames

Entry = frames.Message  # what stands at one place of a chat: a message, or a change


def parse_entry(fields: dict[str, Any]) -> Entry:
    """Return an entry from an event or a page; what a newer server adds is ignored."""
    return msgspec.convert(fields, Entry)


@dataclasses.dataclass(slots=True)
class Marks:
    """How far a member has read and received a chat. Both only rise."""

    read: int = 0
    received: int = 0

    def raise_to(self, read: int, received: int) -> bool:
        """Move forward; say whether that changed anything. What is read is received."""
        before = (self.read, self.received)
        self.read = max(self.read, read)
        self.received = max(self.received, received, self.read)
        return (self.read, self.received) != before


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """How much a client keeps, and what happens beyond (promise P8)."""

    entries_max: int = 1_000  # per chat; the oldest go, `history` reads them again
    fill_max: int = 1_000  # per chat, read after an absence; what is older is `Skipped`
    chats_max: int = 2_000  # the longest silent is forgotten
    outbox_max: int = 5_000  # not yet stored; one more is refused with `Overloaded`
    requests_max: int = 256  # unanswered; one more is refused with `Overloaded`
    marks_max: int = 300  # members per chat whose marks are kept; those of further ones are not
    watched_max: int = 500  # users; one more is refused with `Overloaded`
    events_max: int = 2_000  # not yet taken by the application; then the server keeps the rest
