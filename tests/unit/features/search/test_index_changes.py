"""Effects of chat entries on the search index."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.search.model import DocumentRef, IndexChanges
from chatserver.features.search.worker.index_changes import add_entries
from chatserver.protocol.frames import Message


def entry(seq: int, body: str = "", kind: str = "text", **more: Any) -> Message:
    return Message(seq, seq * 10, "g-1", f"m{seq}", "alice", f"r{seq}", kind, body, **more)


def changes_of(*entries: Message) -> IndexChanges:
    changes = IndexChanges()
    add_entries(changes, entries)
    return changes


def test_edit_and_delete_in_the_same_batch_change_the_document() -> None:
    """The index never gets a text that was replaced or deleted in the batch."""
    found = changes_of(
        entry(1, "One"),
        entry(2, "Two"),
        entry(3, "Uno", "edit", target=1),
        entry(4, "", "delete", target=2),
        entry(5, "x", "reaction", target=1),
    )

    assert {key.seq: each.tokens for key, each in found.documents.items()} == {1: "uno"}
    assert found.removed == {DocumentRef("g-1", 2)}
    assert found.edits == {}


def test_changes_of_earlier_messages_are_kept_as_changes() -> None:
    """The index already has the documents of these messages."""
    found = changes_of(
        entry(9, "new text", "edit", target=1),
        entry(10, "", "edit", target=2, deleted=True),  # its text was replaced
        entry(11, "", "delete", target=3),
    )

    assert found.edits == {DocumentRef("g-1", 1): "new text"}
    assert found.removed == {DocumentRef("g-1", 3)}


def test_tombstones_and_entries_without_text_are_not_documents() -> None:
    """Members, pins and placeholders have no text to find."""
    found = changes_of(
        entry(1, deleted=True),
        entry(2, kind="member"),
        entry(3, kind="lost"),
        entry(4, kind="pin", target=1),
    )

    assert found.documents == {}
    assert found.removed == {DocumentRef("g-1", 1), DocumentRef("g-1", 3)}


@given(st.lists(st.tuples(st.sampled_from(["edit", "delete"]), st.integers(1, 3)), max_size=6))
def test_repeated_entries_give_the_same_documents(actions: list[tuple[str, int]]) -> None:
    """An indexer that was killed indexes a batch again."""
    entries = [entry(seq, f"text {seq}") for seq in (1, 2, 3)]
    entries += [
        entry(4 + n, f"edited {n}" if kind == "edit" else "", kind, target=target)
        for n, (kind, target) in enumerate(actions)
    ]

    once, twice = changes_of(*entries), changes_of(*entries, *entries)

    assert once.documents == twice.documents
    assert once.removed == twice.removed
