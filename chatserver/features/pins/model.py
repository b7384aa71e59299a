"""Values of pinned messages."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from typing import Final

from chatserver.domain.ids import Ref, UserId

PINS_MAX: Final = 50  # per chat


@dataclasses.dataclass(frozen=True, slots=True)
class Pin:
    """A pinned message: its seq, its commit time (`ts`), and when it was pinned."""

    seq: int
    ts: int
    pinned_at_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class PinCount:
    """The number of pins of a chat, and the digest of the request that changed them last."""

    pins: int = 0
    request: str = ""


class PinOutcome(enum.Enum):
    """Outcome of storing a pin."""

    ADDED = "added"
    KNOWN = "known"  # it is pinned already
    FULL = "full"  # the chat has `PINS_MAX` pins
    NO_ITEM = "no_item"  # table `messages` has no item of the message


def digest_of_request(user: UserId, ref: Ref) -> str:
    """Return a digest that identifies retries of a request. It does not reveal the user."""
    return hashlib.blake2b(f"{user}:{ref}".encode(), digest_size=16).hexdigest()
