"""Checks and metrics of a load script, with bounds on their names and values."""

from __future__ import annotations

import re
from typing import Final

from chatserver.loadtest.worker_state import Meters

NAMES_MAX: Final = 50
CHECK_CHARS_MAX: Final = 80
TIME_S_MAX: Final = 3600.0
AMOUNT_MAX: Final = 10**12
PASSED, FAILED, COUNTED = "check_passed:", "check_failed:", "metric:"

_METRIC_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Latencies that the load tool itself measures.
RESERVED: Final = frozenset(
    ("ack", "delivered", "connect", "resume", "page", "request", "sent_late", "loop_lag")
)


class ScriptMetrics:
    """Records into the meters of this process, for all users of the script."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._names: set[str] = set()

    def record_check(self, name: str, is_passed: bool) -> None:
        if not 0 < len(name) <= CHECK_CHARS_MAX:
            raise ValueError(f"name of a check: must have 1 to {CHECK_CHARS_MAX} characters")
        self._add_name(name)
        self._meters.counts[(PASSED if is_passed else FAILED) + name] += 1

    def add_count(self, name: str, amount: int) -> None:
        self._check_metric_name(name)
        if not isinstance(amount, int) or abs(amount) > AMOUNT_MAX:
            raise ValueError(f"{name}: {amount!r}; a count must be an int up to {AMOUNT_MAX:,}")
        self._meters.counts[COUNTED + name] += amount

    def record_time(self, name: str, seconds: float) -> None:
        self._check_metric_name(name)
        if not 0 <= seconds <= TIME_S_MAX:
            raise ValueError(f"{name}: {seconds:g} s; a time must be 0 to {TIME_S_MAX:g} s")
        self._meters.record_latency(name, round(seconds * 1e6))

    def _check_metric_name(self, name: str) -> None:
        if _METRIC_NAME.fullmatch(name) is None:
            raise ValueError(
                f"metric {name!r}: a name has up to 40 lower-case letters, digits and _"
            )
        if name in RESERVED:
            raise ValueError(f"metric {name!r}: the load tool uses this name; choose another")
        self._add_name(name)

    def _add_name(self, name: str) -> None:
        if name in self._names:
            return
        if len(self._names) >= NAMES_MAX:
            raise ValueError(
                f"{name!r} would be name {NAMES_MAX + 1} of a check or metric; use at most "
                f"{NAMES_MAX}, and no names that contain ids or times"
            )
        self._names.add(name)
