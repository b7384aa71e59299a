"""Cleared chats in the message cache: their texts are deleted, and no page returns them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chatserver.client.cache.changes import (
    ChatsUnverified,
    Delivered,
    PageRead,
)
from chatserver.client.cache.sqlite_store import SqliteStore
from chatserver.client.events import ChatCleared, EntriesWithdrawn
from chatserver.client.state_store import Saved
from tests.unit.client.cache.test_sqlite_store import bodies, entry, filled_store, page


def read(store: SqliteStore, **bounds: Any) -> tuple[list[int], bool] | None:
    """Return the seqs of a page, and whether there are more."""
    args: dict[str, Any] = {"before": None, "after": None, "limit": 100, "now_s": 0.0}
    found = store.cache.read_page("c1", **{**args, **bounds})
    return None if found is None else ([each.seq for each in found.entries], found.has_more)


def test_cleared_texts_are_not_in_the_file(tmp_path: Path) -> None:
    """A closed file contains neither the messages nor their later edits."""
    path = tmp_path / "cleared.db"
    texts = [entry(seq, body=f"secret-{seq}") for seq in (1, 2)]
    edit = entry(3, kind="edit", target=1, body="secret-3")
    store = filled_store(path, *(Delivered("c1", each) for each in (*texts, edit, entry(4))))

    store.save_changes(Saved(), [ChatCleared("c1", 2)], {}, 0.0)
    page_of_cleared = page(*texts, before=3)
    store.save_changes(Saved(), [page_of_cleared, Delivered("c1", texts[0])], {}, 0.0)

    assert read(store) == ([3, 4], False)
    assert bodies(store) == ["text 4"]
    store.close()
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([ChatCleared("c1", 2)], ([3], False), id="some"),
        pytest.param([ChatCleared("c1", 3)], ([], False), id="all"),
        pytest.param([ChatCleared("c1", 3), ChatCleared("c1", 1)], ([], False), id="older"),
        pytest.param([ChatCleared("c1", 3), Delivered("c1", entry(4))], ([4], False), id="next"),
        pytest.param([ChatCleared("c1", 5), Delivered("c1", entry(4))], ([], False), id="late"),
        pytest.param(
            [ChatCleared("c1", 5), *(Delivered("c1", entry(seq)) for seq in (4, 5, 6))],
            ([6], False),
            id="ahead",
        ),
        pytest.param([ChatCleared("c1", 3), ChatsUnverified()], None, id="missed events"),
        pytest.param(
            [ChatCleared("c1", 3), ChatsUnverified(), page(entry(2), entry(3), has_more=True)],
            ([], False),
            id="compared",
        ),
        pytest.param(
            [ChatCleared("c1", 2), EntriesWithdrawn("c1", (), 1), Delivered("c1", entry(2))],
            None,
            id="lost",
        ),
        pytest.param(
            [
                ChatCleared("c1", 2),
                EntriesWithdrawn("c1", (), 1),
                Delivered("c1", entry(2)),
                Delivered("c1", entry(3)),
            ],
            ([3], False),
            id="lost and created again",
        ),
    ],
)
def test_page_of_a_cleared_chat_omits_cleared_entries(
    tmp_path: Path, changes: list[Any], expected: tuple[list[int], bool] | None
) -> None:
    """The newest page after three entries and these changes; None: not cached."""
    store = filled_store(tmp_path / "a.db", *(Delivered("c1", entry(seq)) for seq in (1, 2, 3)))

    store.save_changes(Saved(), changes, {}, 0.0)

    assert read(store) == expected
    store.close()


def test_pages_of_the_server_end_at_the_cleared_seq(tmp_path: Path) -> None:
    """A page that reaches the cleared seq has no more pages, even if the server has some."""
    newest = [entry(seq) for seq in (7, 8)]
    older = [entry(seq) for seq in (4, 5, 6)]
    store = filled_store(tmp_path / "a.db", page(*newest, has_more=True), ChatCleared("c1", 5))

    before = read(store)
    store.save_changes(Saved(), [page(*older, before=7, has_more=True)], {}, 0.0)

    assert before == ([7, 8], True)
    assert read(store) == ([6, 7, 8], False)
    assert read(store, before=6) == ([], False)
    assert read(store, after=5) == ([6, 7, 8], False)
    store.close()


def test_chat_that_is_not_cached_is_not_known_to_be_empty(tmp_path: Path) -> None:
    """Only the server has the entries above the cleared seq."""
    store = filled_store(tmp_path / "a.db", Delivered("c1", entry(9)), ChatsUnverified())

    store.save_changes(Saved(), [ChatCleared("c1", 9), ChatCleared("unknown", 9)], {}, 0.0)

    assert read(store) is None
    assert [(each.chat, each.cleared) for each in store.cache.list_chats()] == [("c1", 9)]
    store.save_changes(Saved(), [PageRead("c1", (), None, None, has_more=False)], {}, 0.0)
    assert read(store) == ([], False)
    store.close()


def test_cleared_position_survives_a_restart(tmp_path: Path) -> None:
    """A later copy of a cleared message is ignored by the next process, too."""
    path = tmp_path / "a.db"
    filled_store(path, Delivered("c1", entry(1)), ChatCleared("c1", 1)).close()

    store = filled_store(path, Delivered("c1", entry(1)), Delivered("c1", entry(2)))

    assert read(store) == ([2], False)
    store.close()
