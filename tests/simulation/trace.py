"""Trace of a run: a digest of every step, and the texts of the important ones.

Two runs of a seed are equal if their traces are. `is_whole` keeps the text of each step, to find
the first difference.
"""

from __future__ import annotations


class Trace:
    """The steps of a run, in order."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self.lines: list[str] = []
        self.is_whole = is_whole
        # Python's hash of all steps: the fastest, and the same in each process (PYTHONHASHSEED).
        self._digest = 0

    def tick(self, process: str, count: int) -> None:
        """Record that a process runs callbacks."""
        self._digest = hash((self._digest, process, count))
        if self.is_whole:
            self.lines.append(f"{process} {count}")

    def data(self, source: str, target: str, data: bytes) -> None:
        """Record data on the network."""
        self._digest = hash((self._digest, data))
        if self.is_whole:
            self.lines.append(f"  {source} > {target}: {data!r}")

    def add(self, line: str) -> None:
        """Record a text that is always kept."""
        self._digest = hash((self._digest, line))
        self.lines.append(line)

    def hexdigest(self) -> str:
        return f"{self._digest & (2**64 - 1):016x}"
