"""Limits of a page: items and bytes."""

from __future__ import annotations

import dataclasses

ITEMS_MAX = 200
BYTES_MAX = 262_144


@dataclasses.dataclass(frozen=True, slots=True)
class PageBounds:
    """Maximum size of a page of events, messages or chats; a page holds at least one item."""

    items_max: int = ITEMS_MAX
    bytes_max: int = BYTES_MAX


WIDEST = PageBounds()
