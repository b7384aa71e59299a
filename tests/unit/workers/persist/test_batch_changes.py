"""Coalescing: the effects of a batch on messages, before it is written."""

from __future__ import annotations

import msgspec
import pytest

from chatserver.domain.ids import GatewayId, Seq, Ts
from chatserver.hot.chats.persist_backlog import CommittedMessage
from chatserver.protocol import codec
from chatserver.protocol.frames import Attachment, Message
from chatserver.warm.messages.messages import PersistItem
from workers.persist.batch_changes import (
    EntryWrite,
    MessageKey,
    build_replacement_tombstone,
    coalesce,
    coalesce_unstored,
)


def work(
    seq: int, kind: str = "text", target: int = 0, replaced: int = 0, chat: str = "c"
) -> EntryWrite:
    """Return a backlog entry; its timestamp is 1000 + seq."""
    message = Message(
        seq, 1000 + seq, chat, f"M{seq}", "alice", f"r{seq}", kind, f"text {seq}",
        target=target or None,
    )  # fmt: skip
    raw = CommittedMessage(
        Seq(seq), Ts(1000 + seq), None, codec.encode_tail(message),
        1000 + target if target else 0, 1000 + replaced if replaced else 0,
    )  # fmt: skip
    return EntryWrite(GatewayId("gw1"), raw, PersistItem(message, None))


def bodies(works: list[EntryWrite]) -> list[str]:
    """Return the bodies to be written."""
    return [each.item.message.body for each in works]


def test_coalesce_without_changes_returns_the_same_works() -> None:
    """Messages without changes are not modified."""
    works = [work(1), work(2), work(3, chat="d")]

    assert coalesce(works, 25).writes == works


def test_coalesce_changes_messages_of_the_same_batch() -> None:
    """Messages are written once, with their changes applied."""
    coalesced = coalesce([work(1), work(2, "edit", 1), work(3, "edit", 1, replaced=2), work(4)], 25)

    assert bodies(coalesced.writes) == ["text 3", "", "text 3", "text 4"]
    assert coalesced.writes[1].item.message.deleted
    assert (coalesced.changes, coalesced.cleared) == ({}, {})


def test_coalesce_collects_changes_of_earlier_messages() -> None:
    """Changes are ordered by message; replaced and deleted edits are blanked."""
    coalesced = coalesce(
        [work(7, "edit", 1, replaced=5), work(8, "reaction", 2), work(9, "delete", 1, 7)], 25
    )

    changes = {
        place: [entry.seq for entry in entries] for place, entries in coalesced.changes.items()
    }
    assert changes == {MessageKey("c", 1001): [7, 9], MessageKey("c", 1002): [8]}
    assert coalesced.cleared == {MessageKey("c", 1005): 7}
    assert bodies(coalesced.writes) == ["", "text 8", "text 9"]


def test_coalesce_returns_changes_of_an_earlier_write_for_later() -> None:
    """Redis can lose them between the writes; a deleted or replaced text is not written at all."""
    first_works = [work(1), work(2), work(3, "edit", 1), work(4, "edit", 1, replaced=3)]
    coalesced = coalesce([*first_works, work(5, "delete", 2), work(6, "reaction", 1)], 3)

    assert bodies(coalesced.writes) == ["text 3", "", "", "text 4", "text 5", "text 6"]
    changes = {
        place: [entry.seq for entry in entries] for place, entries in coalesced.changes.items()
    }
    assert (changes, coalesced.cleared) == ({MessageKey("c", 1001): [4, 6]}, {})


def test_stored_entries_are_not_written_again_but_their_changes_are_applied() -> None:
    """A stored message may have changes that Redis has lost."""
    works = [work(1), work(2, "reaction", 1), work(3), work(4, "edit", 3)]
    stored = {MessageKey("c", 1001), MessageKey("c", 1002)}

    coalesced = coalesce_unstored(works, stored, 25)

    assert [write.committed.seq for write in coalesced.writes] == [3, 4]
    assert bodies(coalesced.writes) == ["text 4", "text 4"]
    changes = {place: [e.seq for e in entries] for place, entries in coalesced.changes.items()}
    assert changes == {MessageKey("c", 1001): [2]}


def test_stored_edit_that_is_replaced_is_written_as_a_tombstone() -> None:
    """The process may have died before it cleared the text."""
    works = [work(2, "edit", 1), work(3, "edit", 1, replaced=2)]

    coalesced = coalesce_unstored(works, {MessageKey("c", 1002), MessageKey("c", 1003)}, 25)

    assert [(write.committed.seq, write.item.message.deleted) for write in coalesced.writes] == [
        (2, True)
    ]


def test_coalesce_returns_the_files_of_deleted_messages() -> None:
    """The files of a deleted message are released; an edit keeps its files."""
    sent, kept = work(1), work(2)
    files = [Attachment("f1", "a.png", "image/png", 3)]
    works = [
        each._replace(
            item=PersistItem(msgspec.structs.replace(each.item.message, attachments=files), None)
        )
        for each in (sent, kept)
    ]

    coalesced = coalesce([*works, work(3, "delete", 1), work(4, "edit", 2)], 25)

    assert coalesced.lost == [(1, files)]
    assert [each.item.message.attachments for each in coalesced.writes] == [[], files, [], []]


def test_coalesce_distinguishes_chats() -> None:
    """Two chats may have messages at the same time."""
    coalesced = coalesce([work(1), work(1, chat="d"), work(2, "delete", 1, chat="d")], 25)

    assert bodies(coalesced.writes) == ["text 1", "", "text 2"]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (
            b'"chat":"c","mid":"M","sender":"a","ref":"r","kind":"k","body":7}',
            ("c", "M", "a", "r", "k"),
        ),
        (
            b'"chat":"c","mid":"M","sender":"","body":"\\"sender\\":\\"x\\""',
            ("c", "M", "-", "-", "text"),
        ),
        (b'"chat":"c"', ("c", "-", "-", "-", "text")),
    ],
)
def test_tombstone_keeps_readable_fields(tail: bytes, expected: tuple[str, ...]) -> None:
    """A tombstone always has its position; nothing is parsed from the body."""
    left = build_replacement_tombstone(CommittedMessage(Seq(4), Ts(9), None, tail))

    assert left is not None
    assert (left.chat, left.mid, left.sender, left.ref, left.kind) == expected
    assert (left.seq, left.ts, left.body, left.deleted) == (4, 9, "", True)


@pytest.mark.parametrize(
    "tail", [b"", b"not json", b'"chat":"a b","mid":"M"', b'"body":"\\"chat\\":\\"c\\""']
)
def test_tombstone_without_a_chat_is_none(tail: bytes) -> None:
    """A tombstone without a chat has no position."""
    assert build_replacement_tombstone(CommittedMessage(Seq(4), Ts(9), None, tail)) is None
