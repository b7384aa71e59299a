"""Effects of entries on messages: idempotent, and independent of batches."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from chatserver.protocol import codec
from chatserver.protocol.frames import ENTRY_KINDS, Message
from chatserver.protocol.message_change_effects import apply_entry, build_tombstone, is_message

MESSAGE = Message(1, 1001, "c", "M1", "alice", "r1", "text", "one", reply_to=None, expires_at=99)


def entry(seq: int, kind: str, body: str = "", sender: str = "alice") -> Message:
    """Return a change of message 1."""
    return Message(seq, 1000 + seq, "c", f"M{seq}", sender, f"r{seq}", kind, body, target=1)


@st.composite
def changes(draw: st.DrawFn) -> list[Message]:
    """Generate changes in ascending order of seq; an edit may have lost its text."""
    generated = []
    for seq in range(2, 2 + draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["edit", "edit", "reaction", "reaction", "delete", "member"]))
        change = entry(
            seq, kind, draw(st.sampled_from(["", "x", "y"])), draw(st.sampled_from("abc"))
        )
        is_blank = kind == "edit" and draw(st.booleans())
        generated.append(build_tombstone(change, seq) if is_blank else change)
    return generated


def apply_all(message: Message, entries: list[Message]) -> Message:
    """Apply entries in their order."""
    for each in entries:
        message = apply_entry(message, each)
    return message


@given(changes(), st.integers(0, 9))
def test_entries_applied_again_change_nothing(entries: list[Message], start: int) -> None:
    """A replay from an earlier entry gives the same message."""
    final = apply_all(MESSAGE, entries)

    assert apply_all(final, entries[start:]) == final


@given(changes(), st.integers(0, 9))
def test_entries_applied_in_two_batches_equal_one_batch(entries: list[Message], cut: int) -> None:
    """The boundary between batches does not matter."""
    assert apply_all(apply_all(MESSAGE, entries[:cut]), entries[cut:]) == apply_all(
        MESSAGE, entries
    )


@given(changes())
def test_message_keeps_its_seq_ids_and_expiry(entries: list[Message]) -> None:
    """No change affects the identity of a message."""
    final = apply_all(MESSAGE, entries)

    names = ("seq", "ts", "chat", "mid", "sender", "ref", "kind", "expires_at")
    assert [getattr(final, name) for name in names] == [getattr(MESSAGE, name) for name in names]


@given(changes())
def test_deleted_message_stays_deleted(entries: list[Message]) -> None:
    """No later entry adds a body or a reaction to a deleted message."""
    deleted = apply_entry(MESSAGE, entry(2, "delete"))

    final = apply_all(
        deleted, [msgspec.structs.replace(each, seq=each.seq + 5) for each in entries]
    )

    assert final == deleted
    assert (deleted.body, deleted.reactions, deleted.deleted, deleted.rev) == ("", {}, True, 2)


def test_edit_sets_body_time_and_revision() -> None:
    """Clients need these fields to show an edit."""
    edited = apply_entry(MESSAGE, entry(4, "edit", "two"))

    assert (edited.body, edited.edited_ts, edited.edited_seq, edited.rev) == ("two", 1004, 4, 4)


def test_edit_without_its_text_is_ignored() -> None:
    """The later edit that replaced it follows."""
    blank = build_tombstone(entry(2, "edit", "two"), 3)

    assert apply_entry(MESSAGE, blank) == MESSAGE


def test_reaction_replaces_only_the_reaction_of_the_same_user() -> None:
    """One reaction per user; an empty one removes it."""
    reacted = apply_all(
        MESSAGE,
        [
            entry(2, "reaction", "x", "bob"),
            entry(3, "reaction", "y", "carol"),
            entry(4, "reaction", "z", "bob"),
            entry(5, "reaction", "", "carol"),
        ],
    )

    assert (reacted.reactions, reacted.rev) == ({"bob": "z"}, 5)


def test_entries_have_reserved_kinds() -> None:
    """The kind distinguishes changes from messages."""
    assert is_message(MESSAGE)
    assert not any(is_message(entry(2, kind)) for kind in ENTRY_KINDS)


@given(changes(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_entry_decoded_from_its_bytes_is_equal(entries: list[Message], body: str) -> None:
    """Tail, kind and position are found without parsing, for any body."""
    final = apply_all(msgspec.structs.replace(MESSAGE, body=body), entries)
    tail = codec.encode_tail(final)

    json = codec.join_message(final.seq, final.ts, tail)

    assert codec.decode_message(json) == final
    assert codec.split_message(json) == (final.seq, final.ts, tail)
    assert codec.get_kind(tail) == final.kind


@given(st.sampled_from(["text", "message", *ENTRY_KINDS]), st.sampled_from(["", '","kind":"x"']))
def test_event_of_an_entry_has_its_kind(kind: str, body: str) -> None:
    """The event of a message has the kind `message`, and the event of a change has its kind."""
    tail = codec.encode_entry_tail("c", "M", "alice", "r", kind, body, 1)

    event = msgspec.json.decode(
        codec.join_event("E", 9, codec.encode_entry_event_body("c", 7, 70, tail))
    )

    assert event["kind"] == (kind if kind in ENTRY_KINDS else "message")
    assert (event["cs"], event["message"]["kind"], event["message"]["body"]) == (7, kind, body)
