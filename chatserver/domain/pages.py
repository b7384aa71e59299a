"""How much one answer holds."""

from __future__ import annotations

import dataclasses

ITEMS_MAX = 200
BYTES_MAX = 262_144


@dataclasses.dataclass(frozen=True, slots=True)
class PageBounds:
    """What a page of events, messages or chats holds at most; it holds one item at least."""

    items_max: int = ITEMS_MAX
    bytes_max: int = BYTES_MAX


WIDEST = PageBounds()
