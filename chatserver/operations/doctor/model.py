"""Checks and findings of `chatserver doctor`. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from chatserver.config import Settings

Level = Literal["ok", "note", "problem"]


class DoctorFinding(msgspec.Struct, frozen=True):
    """The result of one check.

    A `problem` prevents something from working or may lose messages; a `note` is a recommendation.
    """

    store: str  # settings, redis, dynamodb or s3
    level: Level
    what: str
    fix: str = ""


class DoctorCheck(msgspec.Struct, frozen=True):
    """A check. It does not run if one of the sections that it needs has invalid values."""

    store: str
    sections: tuple[str, ...]
    run: Callable[[Settings], Awaitable[list[DoctorFinding]]]


def make_finding(
    store: str, message: str, *, is_met: bool, fix: str = "", level: Level = "problem"
) -> DoctorFinding:
    """Return a finding. `message` is the expected condition; `is_met` is whether it is met."""
    return (
        DoctorFinding(store, "ok", message)
        if is_met
        else DoctorFinding(store, level, f"check failed: {message}", fix)
    )
