"""A client's SQLite file: owner, schema version and permissions.

    record  name → value    delivery position and outbox (`chatserver.client.saved_state`)
    owner   name → value    `user` and `server` that the file belongs to
    chat    one row per chat: its cached range (`message_cache`) and `info` (`SavedChat`)
    entry   (chat, seq) → an entry in its current version, msgpack
    hidden  (chat, seq)     messages that the user deleted for themselves

`user_version` is the schema version. A file with another version is rejected, because this SDK
cannot know which cached entries are valid.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from chatserver.errors import Conflict, CorruptData, Unavailable

VERSION = 3
MODE = 0o600
WAL_BYTES_MAX = 4 * 1_048_576  # the size to which the write-ahead log is truncated
LOCK_S = 2.0

_SETTINGS = (
    "PRAGMA auto_vacuum = INCREMENTAL",  # must precede the first table
    "PRAGMA locking_mode = EXCLUSIVE",  # no other process can use the file until it is closed
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = ON",  # overwrites deleted text
    f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}",
)
_TABLES = """
CREATE TABLE record (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE owner (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE chat (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, info BLOB, used INTEGER NOT NULL,
    floor INTEGER NOT NULL, head INTEGER NOT NULL, is_first INTEGER NOT NULL,
    stale INTEGER NOT NULL, entries INTEGER NOT NULL, size INTEGER NOT NULL,
    cleared INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE entry (
    chat INTEGER NOT NULL, seq INTEGER NOT NULL, target INTEGER, expires_at INTEGER,
    body BLOB NOT NULL, PRIMARY KEY (chat, seq)
) WITHOUT ROWID;
CREATE INDEX entry_target ON entry (chat, target) WHERE target IS NOT NULL;
CREATE INDEX entry_expiry ON entry (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE hidden (
    chat INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (chat, seq)
) WITHOUT ROWID;
"""


@contextlib.contextmanager
def translate_errors(path: Path | str) -> Iterator[None]:
    """Translate SQLite errors.

    Raises:
        Conflict: another process uses the file.
        CorruptData: the file is not a store, or is damaged.
        Unavailable: the file cannot be read or written, for example because the disk is full.
    """
    try:
        yield
    except sqlite3.OperationalError as exc:
        if "locked" in str(exc):
            raise Conflict(f"store {path} is in use by another client") from exc
        raise Unavailable(f"store {path} cannot be used: {exc}") from exc
    except sqlite3.DatabaseError as exc:
        raise CorruptData(f"store {path} is damaged: {exc}; delete it to start again") from exc


def open_file(path: Path | str) -> sqlite3.Connection:
    """Open or create a store file that only its owner can read.

    Raises:
        Conflict: another process uses it, or another version of the SDK wrote it.
    """
    is_file = str(path) != ":memory:"
    if is_file:
        _set_mode(Path(path))
    connection = sqlite3.connect(
        path, timeout=LOCK_S, check_same_thread=False, isolation_level=None
    )
    try:
        for setting in _SETTINGS:
            connection.execute(setting)
        _create_tables(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_mode(path: Path) -> None:
    """Create the file if needed, and make it private; SQLite gives its WAL files the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, MODE))
        path.chmod(MODE)
    except OSError as exc:
        raise Unavailable(f"store {path} cannot be opened: {exc.strerror}") from exc


def _create_tables(connection: sqlite3.Connection, path: Path | str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        connection.execute("ROLLBACK")
        raise Conflict(
            f"store {path} has version {version}, but this SDK supports {VERSION}; "
            "use the SDK that wrote it, or delete the file to start again"
        )
    if version == 0:
        for statement in _TABLES.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def delete_file(path: Path | str) -> None:
    """Delete a store file with its write-ahead log. Idempotent."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def get_owner(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM owner"))


def set_owner(connection: sqlite3.Connection, **values: str) -> None:
    connection.executemany("INSERT OR REPLACE INTO owner VALUES (?, ?)", values.items())
