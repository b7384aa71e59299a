"""Trace of a run: a digest of every step, and the texts of the important ones.

Two runs of a seed are equal if their traces are. `is_whole` keeps the text of each step, to find
the first difference.
"""

from __future__ import annotations

import hashlib


class Trace:
    """The steps of a run, in order."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self.lines: list[str] = []
        self.is_whole = is_whole
        self._digest = hashlib.blake2b(digest_size=16)

    def tick(self, process: str, count: int) -> None:
        """Record that a process runs callbacks."""
        line = f"{process} {count}"
        self._digest.update(line.encode())
        if self.is_whole:
            self.lines.append(line)

    def data(self, source: str, target: str, data: bytes) -> None:
        """Record data on the network."""
        self._digest.update(data)
        if self.is_whole:
            self.lines.append(f"  {source} > {target}: {bytes(data)!r}")

    def add(self, line: str) -> None:
        """Record a text that is always kept."""
        self._digest.update(line.encode())
        self.lines.append(line)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
