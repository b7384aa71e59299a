"""Storage for the client state, so that a restarted process continues where the last one stopped.

A store holds two opaque records (see `chatserver.client.saved_state`). Only one process may use a
store at a time. `chatserver.client.cache.sqlite_store.SqliteStore` also caches messages.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Saved(NamedTuple):
    position: bytes | None = None
    outbox: bytes | None = None


class Store(Protocol):
    """Stores a client's delivery position and outbox.

    It is called from threads, one call at a time.
    """

    def load(self) -> Saved:
        """Load the last saved delivery position and outbox."""

    def save(self, saved: Saved) -> None:
        """Save the delivery position and outbox, atomically; None leaves a record unchanged."""

    def close(self) -> None:
        """Close the store."""

    def delete(self) -> None:
        """Delete the delivery position and outbox."""


class MemoryStore:
    """A store in memory: for tests, and for clients that are closed and reopened."""

    def __init__(self) -> None:
        self._saved = Saved()

    def load(self) -> Saved:
        return self._saved

    def save(self, saved: Saved) -> None:
        position, outbox = saved
        self._saved = Saved(position or self._saved.position, outbox or self._saved.outbox)

    def close(self) -> None:
        """Do nothing: the next client may use the same object."""

    def delete(self) -> None:
        self._saved = Saved()
