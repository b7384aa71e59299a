"""A violated guarantee, and the report of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.history.events import LogEntry


class Violation(NamedTuple):
    """A violated guarantee and its description."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def report(violations: Sequence[Violation], shown_max: int = 40) -> str:
    """Format the violations: the count of each rule, then the first violations."""
    counts = Counter(violation.rule for violation in violations)
    lines = [", ".join(f"{rule} x {count}" for rule, count in sorted(counts.items()))]
    lines += [str(violation) for violation in violations[:shown_max]]
    if len(violations) > shown_max:
        lines.append(f"… and {len(violations) - shown_max} more")
    return "\n".join(lines)


def name_of(chat: str, entry: LogEntry) -> str:
    """Return the name of an entry in reports."""
    return f"{entry.kind} {entry.sender}/{entry.ref} at {chat}#{entry.seq}"
