"""Which of very many names take the most, in a fixed amount of memory (Misra and Gries, 1982).

At most ``2 * size`` names are held. When there are more, what the one after the `size` greatest has
is taken from all, and who has nothing left is forgotten. So what is told of a name is never too
much, and too little by at most ``missing / (size + 1)``, where `missing` is how much was put in and
is told of nobody. Lists that are poured into one another keep that property (Agarwal et al., 2012),
which is what lets every process have its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping


class TopList:
    """Sums by name, of the names with the greatest ones."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._sums: dict[str, float] = {}
        self.total = 0.0  # of all names, also of those that are forgotten

    def add(self, name: str, amount: float) -> None:
        """Add to what a name has."""
        self.total += amount
        self._sums[name] = self._sums.get(name, 0.0) + amount
        if len(self._sums) > 2 * self._size:
            self._forget()

    def _forget(self) -> None:
        least = heapq.nlargest(self._size + 1, self._sums.values())[-1]
        left = ((name, amount - least) for name, amount in self._sums.items())
        self._sums = {name: amount for name, amount in left if amount > 0}

    @property
    def sums(self) -> Mapping[str, float]:
        """What each name that is held has; at most twice the size."""
        return self._sums

    @property
    def missing(self) -> float:
        """How much is told of nobody."""
        return max(0.0, self.total - sum(self._sums.values()))
