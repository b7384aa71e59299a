"""Findings of `chatserver doctor`: a check result and its fix. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    A `problem` prevents something from working or may lose messages; a `note` is a recommendation.
    """

    store: str  # settings, redis, dynamodb or s3
    level: Level
    what: str
    fix: str = ""


def make_finding(
    store: str, message: str, *, is_met: bool, fix: str = "", level: Level = "problem"
) -> Finding:
    """Return a finding. `message` is the expected condition; `is_met` is whether it is met."""
    return (
        Finding(store, "ok", message)
        if is_met
        else Finding(store, level, f"check failed: {message}", fix)
    )
