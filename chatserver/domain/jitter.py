"""Jitter: randomized delays, so that many waiting clients do not retry at the same time."""

from __future__ import annotations

import random


def add_jitter(seconds: float, low: float = 0.5, high: float = 1.0) -> float:
    """Return a uniformly random duration between `low` and `high` times `seconds`."""
    return seconds * random.uniform(low, high)  # noqa: S311  # spread, not a secret
