"""Values and limits for pinned messages."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from typing import Final

from chatserver.domain.ids import Ref, UserId

PINS_MAX: Final = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Pin:
    """A pinned message: its seq, its commit time (`ts`), and when it was pinned."""

    seq: int
    ts: int
    pinned_at_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class PinCount:
    """The number of pins in a chat, and the digest of the last request that changed them."""

    pins: int = 0
    request: str = ""


class PinOutcome(enum.Enum):
    """The outcome of storing a pin."""

    ADDED = "added"
    KNOWN = "known"  # the message is already pinned
    FULL = "full"  # the chat has `PINS_MAX` pins
    NO_ITEM = "no_item"  # the message has no item in the `messages` table


def compute_request_digest(user: UserId, ref: Ref) -> str:
    """Return a digest that identifies retries of a request, without revealing the user."""
    return hashlib.blake2b(f"{user}:{ref}".encode(), digest_size=16).hexdigest()
