"""Write restrictions of members: mute, block, slow mode and ended sessions. No I/O.

Formats in the hot tier, chosen so that a commit needs no additional reads:

- A member's value is ``<role>:<joined>``, followed by ``:<until>m`` if the member is muted
  (`until` in seconds since 1970; 0: forever).
- A chat's `gate` is ``<epoch>:<version>``, followed by its write policy: ``:b`` if its two users
  may not write to each other, ``:e`` if it is a companion session that has ended, ``:s<seconds>``
  for slow mode. ``:r<seconds>`` for message retention precedes these. ``:p`` at the end: a fan-out
  of the chat's messages is pending.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from chatserver.errors import ClientError, Forbidden, RateLimited

MUTE_OVER = 1  # `muted_until` in the entry that unmutes a member: a time long past
BLOCKS_MAX = 1_000
# Both users get the same text, because the direction of a block is private.
BLOCKED = "chat: you cannot exchange messages with this user"
MUTED = "chat: you may not send messages here"
ENDED = "chat: this session has ended and is read-only"
TOO_FAST = "chat: slow mode is on; wait before you send again"
_RETENTION = re.compile(r":r(\d+)")


class MemberStatus(NamedTuple):
    """A member's value in the hot tier. `muted_until` is None if the member is not muted."""

    role: str
    joined: int
    muted_until: int | None = None


class WriteRestriction(enum.Enum):
    """Reasons to reject a message at commit; the values match `commit_messages.lua`."""

    BLOCKED = 1
    MUTED = 2
    TOO_FAST = 3
    ENDED = 4


def build_refusal(restriction: int, wait_ms: int = 0) -> ClientError:
    """Return the error for a message that was rejected at commit."""
    match WriteRestriction(restriction):
        case WriteRestriction.BLOCKED:
            return Forbidden(BLOCKED)
        case WriteRestriction.MUTED:
            return Forbidden(MUTED, retry_after_ms=wait_ms or None)
        case WriteRestriction.TOO_FAST:
            return RateLimited(TOO_FAST, retry_after_ms=wait_ms)
        case WriteRestriction.ENDED:
            return Forbidden(ENDED)


def format_member_status(role: str, joined: int, muted_until: int | None = None) -> str:
    """Return a member's value in the hot tier; see the module docstring."""
    return f"{role}:{joined}{format_mute(muted_until)}"


def format_mute(muted_until: int | None) -> str:
    """Return the mute suffix of a member's value."""
    return "" if muted_until is None else f":{muted_until}m"


def parse_member_status(value: bytes) -> MemberStatus:
    role, _, periods = value.decode().partition(":")
    joined, _, mute = periods.partition(":")
    return MemberStatus(role, int(joined or 1), int(mute[:-1]) if mute else None)


def format_write_policy(
    slow_s: int, retention_s: int = 0, *, is_blocked: bool, is_ended: bool = False
) -> str:
    """Return the write policy suffix of a chat's `gate`."""
    retention = f":r{retention_s}" if retention_s else ""
    if is_blocked:
        return f"{retention}:b"
    if is_ended:
        return f"{retention}:e"
    return f"{retention}:s{slow_s}" if slow_s else retention


def is_chat_blocked(gate: str) -> bool:
    """Return whether a block prevents the two users of a direct chat from messaging each other."""
    return gate.removesuffix(":p").endswith(":b")


def is_session_ended(gate: str) -> bool:
    """Return whether a `gate` belongs to a companion session that has ended."""
    return gate.removesuffix(":p").endswith(":e")


def parse_slow_s(gate: str) -> int:
    """Return the slow mode seconds in a `gate`; 0 if slow mode is off."""
    _, _, last = gate.removesuffix(":p").rpartition(":")
    return int(last[1:]) if last.startswith("s") else 0


def parse_retention_s(gate: str) -> int:
    """Return the message retention in a `gate`, in seconds; 0 if unlimited."""
    match = _RETENTION.search(gate)
    return int(match[1]) if match else 0
