"""What keeps a member from writing: muted, blocked, too fast. No I/O.

How the hot tier spells it, so that the commit sees it in what it reads anyway:

- a member's value is ``<role>:<joined>`` and, of one who is muted, ``:<until>m`` behind it: seconds
  since 1970, 0 for ever. It ends with a letter only if there is something to look at;
- a chat's gate is ``<epoch>:<version>`` and, behind it, ``:b`` if its two users may not write to
  each other, or ``:s<seconds>`` for slow mode.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from chatserver.errors import ClientError, Forbidden, RateLimited

SLOW_S_MAX = 86_400
MUTE_S_MAX = 31_536_000
MUTE_OVER = 1  # what an entry says of one who may write again: a time long ago
REASON_CHARS_MAX = 500
BLOCKS_MAX = 1_000  # users whom one user blocks
# The same words for both: who blocked whom is not told.
BLOCKED = "chat: you and this user cannot write to each other"
MUTED = "chat: you may not write here"
TOO_FAST = "chat: is in slow mode: wait before you write again"


class Standing(NamedTuple):
    """What the hot tier says of a member. `muted_until` is None for one who may write."""

    role: str
    joined: int
    muted_until: int | None = None


class Restraint(enum.Enum):
    """Why a commit refused a member; the values are those of `accept.lua`."""

    BLOCKED = 1
    MUTED = 2
    TOO_FAST = 3


def refusal_of(restraint: int, wait_ms: int = 0) -> ClientError:
    """Return what a member is told whom a commit refused."""
    match Restraint(restraint):
        case Restraint.BLOCKED:
            return Forbidden(BLOCKED)
        case Restraint.MUTED:
            return Forbidden(MUTED, retry_after_ms=wait_ms or None)
        case Restraint.TOO_FAST:
            return RateLimited(TOO_FAST, retry_after_ms=wait_ms)


def format_standing(role: str, joined: int, muted_until: int | None = None) -> str:
    """Return a member's value."""
    return f"{role}:{joined}{format_mute(muted_until)}"


def format_mute(muted_until: int | None) -> str:
    """Return what stands behind a member's value."""
    return "" if muted_until is None else f":{muted_until}m"


def parse_standing(value: bytes) -> Standing:
    """Return what a member's value says."""
    role, _, rest = value.decode().partition(":")
    joined, _, mute = rest.partition(":")
    return Standing(role, int(joined or 1), int(mute[:-1]) if mute else None)


def format_strictness(slow_s: int, *, is_blocked: bool) -> str:
    """Return what stands behind a chat's gate."""
    if is_blocked:
        return ":b"
    return f":s{slow_s}" if slow_s else ""


def is_blocked_gate(gate: str) -> bool:
    """Tell whether a gate is one whose users may not write to each other."""
    return gate.removesuffix(":p").endswith(":b")


def slow_s_of(gate: str) -> int:
    """Return the seconds of slow mode that a gate names; 0 if there is none."""
    _, _, last = gate.removesuffix(":p").rpartition(":")
    return int(last[1:]) if last.startswith("s") else 0
