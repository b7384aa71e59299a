"""What keeps a member from writing: muted, blocked, too fast. No I/O.

How the hot tier spells it, so that the commit sees it in what it reads anyway:

- a member's value is ``<role>:<joined>`` and, of one who is muted, ``:<until>m`` behind it: seconds
  since 1970, 0 for ever. It ends with a letter only if there is something to look at;
- a chat's gate is ``<epoch>:<version>`` and, behind it, ``:r<seconds>`` if its messages end by
  themselves, then ``:b`` if its two users may not write to each other, ``:e`` if it is a session
  with a companion that is over, or ``:s<seconds>`` for slow
  mode.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from chatserver.errors import ClientError, Forbidden, RateLimited

SLOW_S_MAX = 86_400
RETENTION_S_MAX = 315_360_000  # ten years
MUTE_S_MAX = 31_536_000
MUTE_OVER = 1  # what an entry says of one who may write again: a time long ago
REASON_CHARS_MAX = 500
BLOCKS_MAX = 1_000  # users whom one user blocks
# The same words for both: who blocked whom is not told.
BLOCKED = "chat: you and this user cannot write to each other"
MUTED = "chat: you may not write here"
ENDED = "chat: this session has ended: it can be read, and not written to"
TOO_FAST = "chat: is in slow mode: wait before you write again"
_RETENTION = re.compile(r":r(\d+)")


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
    ENDED = 4


def refusal_of(restraint: int, wait_ms: int = 0) -> ClientError:
    """Return what a member is told whom a commit refused."""
    match Restraint(restraint):
        case Restraint.BLOCKED:
            return Forbidden(BLOCKED)
        case Restraint.MUTED:
            return Forbidden(MUTED, retry_after_ms=wait_ms or None)
        case Restraint.TOO_FAST:
            return RateLimited(TOO_FAST, retry_after_ms=wait_ms)
        case Restraint.ENDED:
            return Forbidden(ENDED)


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


def format_strictness(
    slow_s: int, retention_s: int = 0, *, is_blocked: bool, is_ended: bool = False
) -> str:
    """Return what stands behind a chat's gate."""
    retention = f":r{retention_s}" if retention_s else ""
    if is_blocked:
        return f"{retention}:b"
    if is_ended:
        return f"{retention}:e"
    return f"{retention}:s{slow_s}" if slow_s else retention


def is_blocked_gate(gate: str) -> bool:
    """Tell whether a gate is one whose users may not write to each other."""
    return gate.removesuffix(":p").endswith(":b")


def is_ended_gate(gate: str) -> bool:
    """Tell whether a gate is one of a session that has ended."""
    return gate.removesuffix(":p").endswith(":e")


def slow_s_of(gate: str) -> int:
    """Return the seconds of slow mode that a gate names; 0 if there is none."""
    _, _, last = gate.removesuffix(":p").rpartition(":")
    return int(last[1:]) if last.startswith("s") else 0


def retention_s_of(gate: str) -> int:
    """Return after how many seconds a gate lets the chat's messages end; 0: they stay."""
    found = _RETENTION.search(gate)
    return int(found[1]) if found else 0
