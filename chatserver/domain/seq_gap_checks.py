"""Checks of the seqs of a chat: contiguous, without duplicates, in ascending order. Pure.

Used by the audit, the load tool and the chaos tests.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def is_contiguous(seqs: Sequence[int]) -> bool:
    """Return whether each seq is one above the previous seq."""
    return all(after == before + 1 for before, after in pairwise(seqs))


def iter_missing_ranges(
    first: int, last: int, ranges: Collection[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``[first, last]`` that no range covers."""
    start = first
    for low, high in sorted(ranges):
        if start > last:
            return
        if low > start:
            yield start, min(low - 1, last)
        start = max(start, high + 1)
    if start <= last:
        yield start, last


def list_missing_seqs(seqs: Collection[int]) -> list[int]:
    """Return the seqs that are missing from a history, which starts at 1."""
    present = [(seq, seq) for seq in seqs]
    holes = iter_missing_ranges(1, max(seqs, default=0), present)
    return [seq for low, high in holes for seq in range(low, high + 1)]


def iter_repeats(values: Iterable[T]) -> Iterator[T]:
    """Yield each value that has occurred before."""
    earlier: set[T] = set()
    for value in values:
        if value in earlier:
            yield value
        earlier.add(value)


def iter_not_ascending(values: Iterable[int]) -> Iterator[int]:
    """Yield the index of each value that is not above the previous value."""
    for index, (before, value) in enumerate(pairwise(values), 1):
        if value <= before:
            yield index


def find_longest_increasing_subsequence(seqs: Sequence[int]) -> set[int]:
    """Return the indexes of a longest increasing subsequence, with the lowest possible last seq."""
    ends: list[int] = []  # for each length, the lowest last seq of an increasing subsequence
    tails: list[int] = []  # the index of each of these seqs in `seqs`
    before: list[int | None] = []
    for number, seq in enumerate(seqs):
        length = bisect.bisect_left(ends, seq)
        before.append(tails[length - 1] if length else None)
        ends[length : length + 1] = [seq]
        tails[length : length + 1] = [number]
    subsequence: set[int] = set()
    step = tails[-1] if tails else None
    while step is not None:
        subsequence.add(step)
        step = before[step]
    return subsequence
