"""Heavy hitters: the names with the largest sums, in bounded memory (Misra and Gries, 1982).

At most ``2 * size`` names are kept. Beyond that, the largest sum after the first `size` is
subtracted from all sums, and names without a remainder are dropped. A reported sum is therefore
never too large, and too small by at most ``missing / (size + 1)``, where `missing` is the amount
added but not reported for any name. Merged lists keep this property (Agarwal et al., 2012), so
every process can have its own list.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping


class HeavyHitters:
    """Sums of the names with the largest sums."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._sums: dict[str, float] = {}
        self.total = 0.0  # of all names, including dropped ones

    def add(self, name: str, amount: float) -> None:
        """Add an amount to a name's sum."""
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
        """The sum of each kept name; at most twice `size` names."""
        return self._sums

    @property
    def missing(self) -> float:
        """The amount that is not reported for any name."""
        return max(0.0, self.total - sum(self._sums.values()))
