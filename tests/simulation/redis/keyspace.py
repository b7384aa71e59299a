"""Keyspace of the simulated Redis: keys, expiry, and earlier states.

The keyspace keeps the value that each written key had at the last fsync, and at the one before it.
`rewind` restores one of these states; the server then repeats some of the calls since, as a Redis
does that loads a truncated AOF, or as a replica that is behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.redis.values import WRONG_TYPE, RedisError, copy_value

T = TypeVar("T")


class Keyspace:
    """One database. `now_ms` returns the time, which is constant during a call."""

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}
        self.expiries: dict[bytes, int] = {}  # key → ms since 1970
        self.now_us = 0
        self.touched: dict[bytes, None] = {}  # streams that this call has written
        # Key → value and expiry at the last fsync; a value of None: the key did not exist.
        self._before: dict[bytes, tuple[Any, int | None]] = {}
        self._before_last: dict[bytes, tuple[Any, int | None]] = {}  # at the fsync before it
        self.has_written = False

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    # reading

    def find(self, key: bytes) -> Any:
        """Return the value of a key, or None."""
        if key in self.expiries and self.expiries[key] <= self.now_us // 1000:
            self.delete(key)
        return self.values.get(key)

    def read(self, key: bytes, kind: type[T]) -> T | None:
        """Return the value of a key, which must be of a type."""
        value = self.find(key)
        if value is not None and type(value) is not kind:
            raise RedisError(WRONG_TYPE)
        return value

    # writing

    def write(self, key: bytes, kind: Callable[[], T]) -> T:
        """Return the value of a key to change it; create it if it does not exist."""
        value = self.find(key)
        self.remember(key)
        if value is None:
            value = self.values[key] = kind()
        elif type(value) is not kind:
            raise RedisError(WRONG_TYPE)
        return value

    def change(self, key: bytes, kind: type[T]) -> T | None:
        """Return the value of a key to change it, or None."""
        value = self.read(key, kind)
        if value is not None:
            self.remember(key)
        return value

    def put(self, key: bytes, value: Any) -> None:
        """Replace a value and end its expiry."""
        self.remember(key)
        self.values[key] = value
        self.expiries.pop(key, None)

    def delete(self, key: bytes) -> bool:
        if key not in self.values:
            return False
        self.remember(key)
        del self.values[key]
        self.expiries.pop(key, None)
        return True

    def delete_empty(self, key: bytes) -> None:
        """Delete a key whose collection has become empty."""
        value = self.values.get(key)
        if value is not None and not len(value):
            self.delete(key)

    def expire(self, key: bytes, at_ms: int) -> bool:
        if self.find(key) is None:
            return False
        self.remember(key)
        if at_ms <= self.now_ms:
            return self.delete(key)
        self.expiries[key] = at_ms
        return True

    def remember(self, key: bytes) -> None:
        """Keep the value that a key had at the last fsync."""
        self.has_written = True
        if key not in self._before:
            value = self.values.get(key)
            copied = None if value is None else copy_value(value)
            self._before[key] = (copied, self.expiries.get(key))

    # durability

    def sync(self) -> None:
        """Everything is on disk now."""
        self._before_last, self._before = self._before, {}

    def rewind(self, syncs: int = 1) -> None:
        """Restore the state of the last fsync, or of the one before it."""
        for before in (self._before, self._before_last)[:syncs]:
            for key, (value, expiry) in before.items():
                self.values.pop(key, None)
                self.expiries.pop(key, None)
                if value is not None:
                    self.values[key] = value
                if expiry is not None:
                    self.expiries[key] = expiry
        self.forget()

    def forget(self) -> None:
        """Forget all earlier states."""
        self._before, self._before_last = {}, {}

    def flush(self) -> None:
        for key in list(self.values):
            self.delete(key)
