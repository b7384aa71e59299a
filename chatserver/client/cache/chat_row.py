"""The row of a chat in the message cache: its cached range (see `message_cache`)."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class ChatRow:
    """The row of a chat, in memory."""

    id: int
    name: str
    used: int
    floor: int = 1
    head: int = 0
    is_first: bool = False
    stale: int = 0
    entries: int = 0
    size: int = 0
    cleared: int = 0
    is_changed: bool = False

    @property
    def is_empty(self) -> bool:
        return self.head < self.floor

    @property
    def bottom(self) -> int:
        """The lowest seq that can be read: entries up to `stale` may be outdated."""
        return max(self.floor, self.stale + 1)

    @property
    def is_complete(self) -> bool:
        """True if there are no entries below `bottom` that the user can read."""
        is_lowest = self.floor <= 1 or (self.floor <= self.cleared + 1 and not self.is_empty)
        return (self.is_first or is_lowest) and self.stale < self.floor

    def clear(self, head: int = 0) -> None:
        self.floor, self.head, self.is_first, self.stale = head + 1, head, False, 0
