"""Equal messages have equal checksums; different ones differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.protocol.frames import Ai, Attachment, Message
from chatserver.protocol.message_change_effects import apply_entry, build_tombstone
from chatserver.warm.messages import removed_message_markers
from chatserver.warm.messages.checksums import compute_checksum, verify
from chatserver.warm.messages.messages import PersistItem, decode_item, encode_item
from chatserver.warm.schema.tables import MessageField as Field

SENT = Message(7, 1_795_000_000_123_456, "d-abc", "01M", "alice", "r1", "text", "hello")
OTHERS: dict[str, Any] = {
    "seq": 8,
    "ts": 1_795_000_000_123_457,
    "chat": "d-abd",
    "mid": "02M",
    "sender": "bob",
    "ref": "r2",
    "kind": "note",
    "body": "hallo",
    "reply_to": 3,
    "target": 3,
    "user": "eve",
    "role": "admin",
    "name": "Team",
    "rev": 9,
    "edited_ts": 5,
    "edited_seq": 5,
    "deleted": True,
    "reactions": {"bob": "+"},
    "expires_at": 1_795_000_060,
    "attachments": [Attachment("f1", "sea.png", "image/png", 1024)],
    "muted_until": 0,
    "banned": True,
    "ai": Ai("echo", "done", 12, 4),
}


def test_checksum_depends_on_every_field() -> None:
    """A new field needs a value here and another form of the checksum."""
    assert {*OTHERS, "shredded"} == set(Message.__struct_fields__)
    sums = {compute_checksum(msgspec.structs.replace(SENT, **{n: v})) for n, v in OTHERS.items()}

    assert len(sums | {compute_checksum(SENT)}) == len(OTHERS) + 1


reactions = st.dictionaries(st.text("ab", min_size=1, max_size=3), st.text(min_size=1, max_size=2))


@given(st.text(max_size=20), reactions, st.sampled_from(("", "edit", "delete", "reaction")))
def test_item_after_any_valid_change_has_a_correct_checksum(
    body: str, emoji: dict[str, str], kind: str
) -> None:
    """The order of reactions and the receiver do not matter."""
    message = msgspec.structs.replace(SENT, body=body, reactions=emoji, rev=8 if emoji else 0)
    if kind:
        entry = msgspec.structs.replace(SENT, seq=9, kind=kind, body="x", target=7)
        message = apply_entry(message, entry)
    item = encode_item(PersistItem(message, "bob"))
    again = encode_item(PersistItem(decode_item(item), None))
    if Field.REACTIONS in item:
        pairs = item[Field.REACTIONS]["M"].items()
        item[Field.REACTIONS] = {"M": dict(reversed(pairs))}

    assert verify(item, decode_item(item)) == "right"
    assert again[Field.SUM] == item[Field.SUM]


@pytest.mark.parametrize("name", [Field.BODY, Field.SENDER, Field.MID, Field.REF, Field.KIND])
def test_item_with_a_modified_attribute_is_wrong(name: str) -> None:
    """Modifications outside the product are detected."""
    item = encode_item(PersistItem(SENT, "bob")) | {name: {"S": "other"}}

    assert verify(item, decode_item(item)) == "wrong"


@pytest.mark.parametrize("held", [None, "", "1.1", "2.1.00000000", "1.5.00000000", "1.15.0"])
def test_item_without_a_checksum_of_this_form_and_revision_is_unverified(held: str | None) -> None:
    """Items of earlier and later releases are not reported as wrong."""
    item = encode_item(PersistItem(SENT, None))
    del item[Field.SUM]
    if held is not None:
        item[Field.SUM] = {"S": held}

    assert verify(item, decode_item(item)) == "unverified"


def test_marker_has_the_checksum_of_its_tombstone() -> None:
    """The checksum of a marker covers its position."""
    marker = removed_message_markers.encode_marker(
        msgspec.structs.replace(SENT, expires_at=1_795_000_060)
    )
    moved = marker | {Field.SEQ: {"N": "8"}}

    assert verify(marker, removed_message_markers.decode_marker(marker)) == "right"
    assert verify(moved, removed_message_markers.decode_marker(moved)) == "wrong"


def test_checksum_of_revision_one_equals_the_sent_message() -> None:
    """Items store revision 1; the sent message omits it."""
    assert compute_checksum(msgspec.structs.replace(SENT, rev=1)) == compute_checksum(SENT)
    assert compute_checksum(build_tombstone(SENT, 9)).startswith("1.9.")
