"""Files: who may send them, when they expire, and how names and checksums are normalized."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest, Conflict, NotFound, TooLarge
from chatserver.features.attachments.model import (
    SEQS_MAX,
    File,
    UploadBounds,
    build_content_disposition,
    check_sendable,
    check_size,
    checksum_base64,
    parse_checksum,
    parse_file_name,
    with_message,
    without_message,
)

ALICE, BOB = UserId("alice"), UserId("bob")
CHAT, OTHER = ChatId("c1"), ChatId("c2")
FILE = File("f", ALICE, CHAT, "a.txt", "text/plain", 3, "0" * 64, 100, 200, "ready")


def test_file_above_a_size_limit_is_refused() -> None:
    """One limit applies to a file, the other to all pending uploads."""
    check_size(10, UploadBounds(10, 1, 20))
    for bounds in (UploadBounds(9, 1, 20), UploadBounds(20, 1, 9)):
        with pytest.raises(TooLarge):
            check_size(10, bounds)


def test_file_may_be_sent_by_its_owner_to_its_chat_before_its_deadline() -> None:
    """Another user, another chat or a later time is refused."""
    assert check_sendable(FILE, ALICE, CHAT, 199.9) == FILE
    for file, sender, chat, now in (
        (None, ALICE, CHAT, 150),
        (FILE, BOB, CHAT, 150),
        (FILE, ALICE, OTHER, 150),
        (FILE, ALICE, CHAT, 200),
    ):
        with pytest.raises(NotFound):
            check_sendable(file, sender, chat, now)
    with pytest.raises(Conflict):
        check_sendable(dataclasses.replace(FILE, phase="waiting"), ALICE, CHAT, 150)


def test_file_is_kept_while_a_message_references_it() -> None:
    """It becomes due for deletion when the last reference is removed."""
    two = with_message(with_message(FILE, 1, None), 2, None)
    one = without_message(two, 1, 300.5)
    none = without_message(one, 2, 400.5)

    assert (two.due, one.due, none.due) == (None, None, 400)
    assert none.is_unreferenced and not one.is_unreferenced


@pytest.mark.parametrize(
    ("expiries", "due"),
    [([500], 500), ([500, 400], 500), ([400, 500], 500), ([None, 500], None), ([500, None], None)],
)
def test_file_expires_with_the_last_of_its_messages(
    expiries: list[int | None], due: int | None
) -> None:
    """A message without an expiry keeps it forever."""
    file = FILE
    for seq, expiry in enumerate(expiries, start=1):
        file = with_message(file, seq, expiry)

    assert file.due == due


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=12))
def test_repeated_message_update_of_a_file_has_no_effect(steps: list[tuple[bool, int]]) -> None:
    """A replayed batch repeats steps."""
    file = FILE
    for is_added, seq in steps:
        again = file = (
            with_message(file, seq, None) if is_added else without_message(file, seq, 300)
        )
        again = with_message(file, seq, None) if is_added else without_message(file, seq, 999)
        assert again == file
    assert file.seqs or file.due is not None


def test_file_with_too_many_references_is_kept_forever() -> None:
    """The row of the file stays small, and no message loses a file that it still references."""
    file = FILE
    for seq in range(1, SEQS_MAX + 50):
        file = with_message(file, seq, None)
    for seq in range(1, SEQS_MAX + 50):
        file = without_message(file, seq, 300)

    assert (len(file.seqs), file.due) == (1, None)


def test_names_and_checksums_are_normalized() -> None:
    """Names are in NFC, checksums in lower case."""
    assert parse_file_name("  Cafe\u0301.PNG ") == "Caf\u00e9.PNG"
    assert parse_file_name("👨\u200d👩\u200d👧.png") == "👨\u200d👩\u200d👧.png"
    assert parse_checksum("AB" * 32) == "ab" * 32
    assert checksum_base64("00" * 32) == "A" * 43 + "="
    assert build_content_disposition("Ärger.pdf") == (
        "attachment; filename=\"Arger.pdf\"; filename*=UTF-8''%C3%84rger.pdf"
    )
    with pytest.raises(BadRequest):
        parse_checksum("g" * 64)
