"""Heavy hitters: the names with the largest sums, in bounded memory (Misra and Gries, 1982).

At most ``2 * size`` names are kept. When there are more, the ``size + 1``-th largest sum is
subtracted from all sums, and names whose sum is no longer positive are dropped. A reported sum is
therefore never too large, and is too small by at most ``missing / (size + 1)``, where `missing` is
the total of all names minus the reported sums. Merged results have the same bounds (Agarwal et al.,
2012).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping


class HeavyHitters:
    """The names with the largest sums."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._sums: dict[str, float] = {}
        self.total = 0.0  # sum of all amounts, including those of dropped names

    def add(self, name: str, amount: float) -> None:
        """Add `amount` to the sum of `name`."""
        self.total += amount
        self._sums[name] = self._sums.get(name, 0.0) + amount
        if len(self._sums) > 2 * self._size:
            self._prune()

    def _prune(self) -> None:
        minimum = heapq.nlargest(self._size + 1, self._sums.values())[-1]
        reduced = ((name, amount - minimum) for name, amount in self._sums.items())
        self._sums = {name: amount for name, amount in reduced if amount > 0}

    @property
    def sums(self) -> Mapping[str, float]:
        """The sums of the kept names, at most ``2 * size``."""
        return self._sums

    @property
    def missing(self) -> float:
        """The total of all names minus the reported sums."""
        return max(0.0, self.total - sum(self._sums.values()))
