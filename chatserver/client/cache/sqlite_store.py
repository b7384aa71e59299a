"""`SqliteStore`: the state and the message cache of one client in a SQLite file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from chatserver.client.cache import sqlite_file
from chatserver.client.cache.changes import Change
from chatserver.client.cache.message_cache import MessageCache
from chatserver.client.state_store import Saved
from chatserver.errors import Conflict

ENTRIES_PER_CHAT_MAX = 2_000
BYTES_MAX = 64 * 1_048_576
CHATS_MAX = 2_000

T = TypeVar("T")


class Owner(NamedTuple):
    """The user and the server that a file belongs to; empty if not known yet."""

    user: str = ""
    server: str = ""


class SqliteStore:
    """A store in one SQLite file that also caches messages, for one user and one server.

    `entries_per_chat_max` limits the cached entries (messages and changes) of a chat; `bytes_max`
    limits the total size of all chats. If either is 0, no messages are cached. `user` and `server`
    are checked when the file is opened. By default, `server` is the address of the gateway; set a
    name if the address changes. Only the file's owner can read it (mode 0600).

    Guarantees:
        A save writes changes, cursor and outbox in one transaction, which survives a process crash.
        A power failure may lose the last saves, but never corrupts the file.
        A page has no gap: evicted and missed entries are read from the server.
        A cached message is in its state at the last save. Edits, reactions and deletions (including
        the erasure of a user) arrive as events and are applied. If the client has missed events or
        the server has lost data (see `ChangeRecorder`), cached entries are unverified: they are not
        read until a page of history has replaced them (see `revalidation`). A chat that the user
        has left is deleted. Entries that the user has cleared are deleted, and not cached again. An
        expired message is a tombstone from its `expires_at` on, also offline. Deleted and expired
        text is overwritten in the file, at the latest when the file is closed.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        entries_per_chat_max: int = ENTRIES_PER_CHAT_MAX,
        bytes_max: int = BYTES_MAX,
        user: str | None = None,
        server: str | None = None,
    ) -> None:
        self.user = user
        self.server = server
        self._path = path
        self._entries_per_chat_max = entries_per_chat_max
        self._bytes_max = bytes_max
        self._connection: sqlite3.Connection | None = None
        self._opened_cache: MessageCache | None = None

    @property
    def cache(self) -> MessageCache:
        """The cached messages; the first access opens the file."""
        if self._opened_cache is None:
            connection = self._connection = sqlite_file.open_file(self._path)
            self._opened_cache = MessageCache(
                connection,
                entries_per_chat_max=self._entries_per_chat_max,
                bytes_max=self._bytes_max,
                chats_max=CHATS_MAX,
            )
        return self._opened_cache

    @property
    def _database(self) -> sqlite3.Connection:
        assert self.cache is not None
        assert self._connection is not None
        return self._connection

    def claim(self, owner: Owner) -> Owner:
        """Check the owner of the file, add a missing user or server, and return the owner.

        Raises:
            Conflict: the file belongs to another user or server.
        """
        with sqlite_file.translate_errors(self._path):
            known = sqlite_file.get_owner(self._database)
            given = {"user": owner.user or self.user, "server": self.server or owner.server}
            for name, value in given.items():
                if value and known.get(name, value) != value:
                    raise Conflict(
                        f"store {self._path} belongs to {name} {known[name]}, not {value}; use"
                        " another file"
                    )
            new = {name: value for name, value in given.items() if value and name not in known}
            sqlite_file.set_owner(self._database, **new)
            known |= new
            return Owner(known.get("user", ""), known.get("server", ""))

    def load(self) -> Saved:
        with sqlite_file.translate_errors(self._path):
            rows: dict[str, bytes] = dict(self._database.execute("SELECT name, value FROM record"))
            return Saved(rows.get("position"), rows.get("outbox"))

    def save(self, saved: Saved) -> None:
        self.save_changes(saved, (), {}, 0.0)

    def save_changes(
        self,
        saved: Saved,
        changes: Sequence[Change],
        infos: Mapping[str, bytes],
        now_s: float,
    ) -> None:
        """Save `saved.position` and `saved.outbox` unless None, and change the cache, atomically.

        `infos` maps chats to their encoded `SavedChat`; `now_s` is the Unix time, for expiry.
        """
        rows = [(name, value) for name, value in saved._asdict().items() if value is not None]
        with sqlite_file.translate_errors(self._path):
            cache = self.cache
            with cache.transaction():
                cache.apply(changes, infos, now_s)
                self._database.executemany("INSERT OR REPLACE INTO record VALUES (?, ?)", rows)
            cache.vacuum()

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.close()
        self._connection = self._opened_cache = None

    def delete(self) -> None:
        self.close()
        sqlite_file.delete_file(self._path)

    def read(self, query: Callable[[MessageCache], T]) -> T:
        """Return the result of a query of the cached messages."""
        with sqlite_file.translate_errors(self._path):
            return query(self.cache)
