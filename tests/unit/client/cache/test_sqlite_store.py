"""`SqliteStore`: its file, its versions, and the removal of texts from the file."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from chatserver.client.cache.changes import (
    ChatsUnverified,
    Delivered,
    PageRead,
)
from chatserver.client.cache.local_store import load_chats
from chatserver.client.cache.sqlite_file import VERSION
from chatserver.client.cache.sqlite_store import Owner, SqliteStore
from chatserver.client.events import MessagesHidden
from chatserver.client.model import Entry, parse_entry
from chatserver.client.state_store import Saved
from chatserver.errors import Conflict, CorruptData
from chatserver.protocol.frames import Cursor
from tests.unit.client.device import entry as fields_of


def entry(seq: int, **fields: Any) -> Entry:
    return parse_entry(fields_of(seq, **fields))


def page(*entries: Entry, before: int | None = None, has_more: bool = False) -> PageRead:
    return PageRead("c1", entries, before, None, has_more)


def filled_store(path: Path, *changes: Any, now_s: float = 0.0) -> SqliteStore:
    store = SqliteStore(path)
    store.save_changes(Saved(), changes, {}, now_s)
    return store


def bodies(store: SqliteStore, **bounds: int) -> list[str] | None:
    args: dict[str, Any] = {"before": None, "after": None, "limit": 100, "now_s": 0.0, **bounds}
    found = store.cache.read_page("c1", **args)
    return None if found is None else [e.body for e in found.entries if e.target is None]


def test_file_is_private(tmp_path: Path) -> None:
    """Only the owner can read it, even if the file existed before."""
    path = tmp_path / "a.db"
    path.touch(mode=0o644)

    store = filled_store(path, Delivered("c1", entry(1)))

    assert bodies(store) == ["text 1"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.close()


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_file_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    """This version cannot know which copies in such a file are valid."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {version}")
    other.close()

    with pytest.raises(Conflict, match="use the SDK that wrote it"):
        SqliteStore(path).load()


def test_file_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    """The error says what to do."""
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)

    with pytest.raises(CorruptData, match="delete it"):
        SqliteStore(path).load()


def test_store_of_another_user_is_refused(tmp_path: Path) -> None:
    """The user is checked before any data is read."""
    store = SqliteStore(tmp_path / "a.db", user="alice")
    store.claim(Owner("", "server"))
    store.close()

    with pytest.raises(Conflict, match="belongs to user alice, not bob"):
        SqliteStore(tmp_path / "a.db", user="bob").claim(Owner("", "server"))


@pytest.mark.parametrize(
    "removal",
    [
        Delivered("c1", entry(3, kind="delete", target=1, body="")),
        MessagesHidden("c1", (1,)),
        page(
            entry(1, deleted=True, body="", rev=3),
            entry(2, kind="edit", target=1, deleted=True, body="", rev=3),
        ),
    ],
    ids=["delete", "hide", "page"],
)
def test_removed_text_is_not_in_the_file(tmp_path: Path, removal: Any) -> None:
    """The bytes of the message and of its edits are overwritten."""
    first = entry(1, body="secret one")
    edit = entry(2, kind="edit", target=1, body="secret two")
    store = filled_store(tmp_path / "a.db", Delivered("c1", first), Delivered("c1", edit))
    assert bodies(store) == ["secret two"]

    store.save_changes(Saved(), [removal], {}, 0.0)

    assert bodies(store) == [""]
    store.close()
    assert b"secret" not in (tmp_path / "a.db").read_bytes()


def test_expired_message_is_a_tombstone(tmp_path: Path) -> None:
    """Reads return no text from the expiry on, and the next save removes it from the file."""
    message = entry(1, body="secret", expires_at=10)
    store = filled_store(tmp_path / "a.db", Delivered("c1", message), now_s=5.0)

    assert bodies(store, now_s=9) == ["secret"]
    assert bodies(store, now_s=10) == [""]
    store.save_changes(Saved(), [], {}, 10.0)
    store.close()
    assert b"secret" not in (tmp_path / "a.db").read_bytes()


def test_unverified_entries_are_readable_once_a_page_replaced_them(tmp_path: Path) -> None:
    """Verification goes from the newest to the oldest; entries below are not readable yet."""
    old = [Delivered("c1", entry(seq, body=f"old {seq}")) for seq in range(1, 7)]
    store = filled_store(tmp_path / "a.db", *old, ChatsUnverified())
    assert bodies(store) is None
    assert store.cache.find_unverified() == ("c1", None)

    store.save_changes(Saved(), [page(entry(4), entry(5), has_more=True)], {}, 0.0)

    assert bodies(store) == ["text 4", "text 5"]
    assert bodies(store, before=4) is None
    assert store.cache.find_unverified() == ("c1", 4)
    store.save_changes(Saved(), [page(entry(2), entry(3), before=4)], {}, 0.0)
    assert bodies(store) == ["text 2", "text 3", "text 4", "text 5"]
    assert store.cache.find_unverified() is None
    store.close()


def test_failed_save_changes_nothing(tmp_path: Path) -> None:
    """Neither messages nor records change, in memory or in the file."""
    store = filled_store(tmp_path / "a.db", Delivered("c1", entry(1)))

    with pytest.raises(AssertionError):
        store.save_changes(
            Saved(b"position", b"outbox"),
            [Delivered("c1", entry(2)), "no change"],  # type: ignore[list-item]  # invalid
            {},
            0.0,
        )

    assert (bodies(store), store.load(), store.cache.entries) == (["text 1"], Saved(), 1)
    store.save_changes(Saved(), [Delivered("c1", entry(2))], {}, 0.0)
    assert bodies(store) == ["text 1", "text 2"]
    store.close()


def test_page_older_than_a_delivered_change_gets_the_change(tmp_path: Path) -> None:
    """The server sent the page before the edit, and the page arrived after it."""
    edit = entry(3, kind="edit", target=2, body="edited")
    store = filled_store(tmp_path / "a.db", Delivered("c1", edit))

    store.save_changes(Saved(), [page(entry(1), entry(2), before=3)], {}, 0.0)

    assert bodies(store) == ["text 1", "edited"]
    store.close()


def test_chat_read_from_its_first_visible_entry_is_complete(tmp_path: Path) -> None:
    """The last page has no more entries, offline too; evicted entries count as more."""
    store = filled_store(tmp_path / "a.db", page(entry(5), entry(6)))
    all_entries = store.cache.read_page("c1", before=None, after=None, limit=9, now_s=0.0)
    before_first = store.cache.read_page("c1", before=5, after=None, limit=9, now_s=0.0)
    store.close()

    small = SqliteStore(tmp_path / "a.db", entries_per_chat_max=1)
    small.save_changes(Saved(), [Delivered("c1", entry(7))], {}, 0.0)
    evicted = small.cache.read_page("c1", before=None, after=None, limit=9, now_s=0.0)

    assert all_entries is not None and not all_entries.has_more
    assert before_first is not None and not before_first.entries
    assert evicted is not None and evicted.has_more
    assert bodies(small, before=7) is None
    small.close()


def test_hidden_seq_is_another_message_in_a_new_epoch(tmp_path: Path) -> None:
    """The list of hidden messages is cleared, even if none of them is cached."""
    store = filled_store(tmp_path / "a.db", MessagesHidden("c1", (1,)), ChatsUnverified(epoch="e2"))

    store.save_changes(Saved(), [Delivered("c1", entry(1))], {}, 0.0)

    assert bodies(store) == ["text 1"]
    store.close()


def test_entries_of_a_newer_epoch_are_not_restored_as_delivered(tmp_path: Path) -> None:
    """After a crash, the cache may be ahead of the saved position; its seqs are other messages."""
    new = [ChatsUnverified(epoch="e2"), Delivered("c1", entry(1))]
    store = filled_store(tmp_path / "a.db", *new)
    shown: dict[str, int | None] = {"c1": 1}

    (older,) = load_chats(store.cache, Cursor("e1", 7), shown, 0.0)
    (same,) = load_chats(store.cache, Cursor("e2", 7), shown, 0.0)

    assert older.entries == []
    assert [entry.body for entry in same.entries] == ["text 1"]
    store.close()
