"""What a look at a store found: is it as the server needs it, and how to mend it. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    A `problem` keeps something from working or loses messages; of a `note` one should know.
    """

    store: str  # settings, redis, dynamodb or s3
    level: Level
    what: str
    mend: str = ""


def found(
    store: str, what: str, *, is_so: bool, mend: str = "", level: Level = "problem"
) -> Finding:
    """Return a finding: `what` is said as it should be, and as it is where it is not so."""
    return Finding(store, "ok", what) if is_so else Finding(store, level, f"not so: {what}", mend)
