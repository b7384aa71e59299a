"""Conflicts between transactions and other requests on the same item.

Source: *Transaction conflict handling in DynamoDB* (Developer Guide). A request is refused because
of another request that is still running:

| refused            | while one of these runs on the item                                 |
|--------------------|---------------------------------------------------------------------|
| single write       | TransactWriteItems                                                  |
| TransactWriteItems | TransactWriteItems                                                  |
| TransactGetItems   | TransactWriteItems, a single write, BatchWriteItem                  |

All other requests are accepted: reads without a transaction, writes to an item that is being read,
and transactions on an item with a running single write. The guide does not list BatchWriteItem
during a transaction; here, the item is returned as unprocessed. A ConditionCheck conflicts like a
write.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Sequence

import attrs

from chatserver.dev.aws_limits.requests import ItemKey


@attrs.define(eq=False, repr=False)
class ReadTransaction:
    """A running TransactGetItems. It is canceled if a write to one of its items starts."""

    keys: Sequence[ItemKey]
    conflicting: set[ItemKey]

    @property
    def conflicts(self) -> list[bool]:
        """Return, for each item, True if it has a conflict."""
        return [key in self.conflicting for key in self.keys]


class RunningRequests:
    """The writes and read transactions that are in progress, by item."""

    def __init__(self) -> None:
        self._in_transactions: set[ItemKey] = set()
        self._writes: collections.Counter[ItemKey] = collections.Counter()
        self._reads: set[ReadTransaction] = set()

    def find_transactions(self, keys: Sequence[ItemKey]) -> list[bool]:
        """Return, for each item, whether a TransactWriteItems is running on it."""
        return [key in self._in_transactions for key in keys]

    @contextlib.contextmanager
    def transaction(self, keys: Sequence[ItemKey]) -> Iterator[None]:
        """Register a running TransactWriteItems.

        First call `find_transactions` to check for conflicts.
        """
        self._cancel_reads(keys)
        self._in_transactions.update(keys)
        try:
            yield
        finally:
            self._in_transactions.difference_update(keys)

    @contextlib.contextmanager
    def write(self, keys: Sequence[ItemKey]) -> Iterator[None]:
        """Register a running single write or BatchWriteItem."""
        self._cancel_reads(keys)
        self._writes.update(keys)
        try:
            yield
        finally:
            self._writes.subtract(keys)
            for key in keys:
                if not self._writes[key]:
                    del self._writes[key]

    @contextlib.contextmanager
    def read_transaction(self, keys: Sequence[ItemKey]) -> Iterator[ReadTransaction]:
        """Register a running TransactGetItems.

        Check `conflicts` when the request starts and when it ends.
        """
        running = {key for key in keys if key in self._in_transactions or key in self._writes}
        read = ReadTransaction(keys, running)
        self._reads.add(read)
        try:
            yield read
        finally:
            self._reads.discard(read)

    def _cancel_reads(self, keys: Sequence[ItemKey]) -> None:
        for read in self._reads:
            read.conflicting.update(set(keys).intersection(read.keys))
