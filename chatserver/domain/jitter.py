"""Waits of slightly different length: many who wait for one thing do not come back at once."""

from __future__ import annotations

import random


def jittered(seconds: float, low: float = 0.5, high: float = 1.0) -> float:
    """Return between `low` and `high` times `seconds`, evenly spread."""
    return seconds * random.uniform(low, high)  # noqa: S311  # spread, not a secret
