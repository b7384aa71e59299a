"""Storage for the client state, so that a restarted process continues where the last one stopped.

A store holds two opaque records (see `chatserver.client.saved_state`). Only one process may use a
store at a time.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple, Protocol


class Saved(NamedTuple):
    """The content of a store."""

    place: bytes | None = None
    deeds: bytes | None = None


class Store(Protocol):
    """Stores two records. The client calls it from threads, one call at a time."""

    def load(self) -> Saved:
        """Load the last saved records."""

    def save(self, saved: Saved) -> None:
        """Save the records that are not None, atomically."""

    def close(self) -> None:
        """Close the store."""


class MemoryStore:
    """A store in memory: for tests, and for clients that are closed and reopened."""

    def __init__(self) -> None:
        self._saved = Saved()

    def load(self) -> Saved:
        return self._saved

    def save(self, saved: Saved) -> None:
        place, deeds = saved
        self._saved = Saved(place or self._saved.place, deeds or self._saved.deeds)

    def close(self) -> None:
        """Do nothing: the next client may use the same object."""


class SqliteStore:
    """A store in one SQLite file.

    Guarantees:
        Saved records survive a process crash. A power failure may lose the last saves, but never
        corrupts the file.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS record (name TEXT PRIMARY KEY, value BLOB NOT NULL)"
            )
        return self._connection

    def load(self) -> Saved:
        rows: dict[str, bytes] = dict(self._open().execute("SELECT name, value FROM record"))
        return Saved(rows.get("place"), rows.get("deeds"))

    def save(self, saved: Saved) -> None:
        """Save the records that are not None, in one transaction."""
        rows = [(name, value) for name, value in saved._asdict().items() if value is not None]
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO record VALUES (?, ?)", rows)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
