"""Views: entries for one reader, from tiers that may lag behind acked changes."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import Seq, Ts
from chatserver.domain.membership_periods import Reader
from chatserver.domain.messages import LogEntry
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import apply_entry, build_tombstone
from chatserver.service.history.reader_views import NO_CHANGES, View

MESSAGE = Message(5, 1005, "c", "M5", "alice", "r5", "text", "one")
EDIT = Message(8, 1008, "c", "M8", "alice", "r8", "edit", "two", target=5)
EDITED = apply_entry(MESSAGE, EDIT)
NOW = 2000.0


def entry_of(message: Message) -> LogEntry:
    """Return the log entry of a message."""
    return LogEntry(Seq(message.seq), Ts(message.ts), codec.encode_tail(message))


def seen_in_log(view: View, message: Message) -> Message:
    """Return a message as a reader of the log sees it."""
    tail = view.render_entry(entry_of(message), NOW)
    return codec.decode_message(codec.join_message(message.seq, message.ts, tail))


def test_view_without_changes_returns_the_input() -> None:
    """The bytes are not parsed or copied."""
    entry = entry_of(MESSAGE)

    assert NO_CHANGES.render_entry(entry, NOW) is entry.tail
    assert NO_CHANGES.render_message(MESSAGE, NOW) is MESSAGE


def test_view_applies_changes_to_both_tiers() -> None:
    """An acked change is shown even if a tier has the older message."""
    view = View({5: codec.encode(EDITED)}, frozenset())

    assert seen_in_log(view, MESSAGE) == EDITED
    assert view.render_message(MESSAGE, NOW) == EDITED


def test_view_prefers_a_stored_message_that_is_newer() -> None:
    """The warm tier is read after the overlay and may be newer."""
    view = View({5: codec.encode(EDITED)}, frozenset())
    newer = build_tombstone(EDITED, 9)

    assert view.render_message(newer, NOW) == newer


def test_view_removes_the_text_of_a_replaced_edit() -> None:
    """The overlay has only the revision that replaced the edit."""
    view = View({8: b"11"}, frozenset())

    assert view.render_message(EDIT, NOW) == build_tombstone(EDIT, 11)


@pytest.mark.parametrize("message", [MESSAGE, EDIT])
def test_view_hides_a_message_and_its_edits(message: Message) -> None:
    """A message that a user deleted for themselves is a tombstone for them, in both tiers."""
    view = View({}, frozenset({5}))

    assert seen_in_log(view, message) == build_tombstone(message, 0)
    assert view.render_message(message, NOW) == build_tombstone(message, 0)


def test_view_hides_nothing_else() -> None:
    """Other messages and reactions are unchanged; they do not contain its text."""
    view = View({}, frozenset({4, 6}))
    reaction = Message(6, 1006, "c", "M", "bob", "r", "reaction", "x", target=5)
    hidden = View({}, frozenset({5}))

    assert seen_in_log(view, MESSAGE) == MESSAGE
    assert seen_in_log(hidden, reaction) == reaction


def test_view_of_an_expired_message_is_its_tombstone() -> None:
    """This holds for unchanged and edited messages."""
    ending = Message(5, 1005, "c", "M5", "alice", "r5", "text", "one", expires_at=1000)
    edited = apply_entry(ending, EDIT)
    view = View({5: codec.encode(edited)}, frozenset())

    for seen in (seen_in_log(view, ending), view.render_message(ending, NOW)):
        assert (seen.body, seen.deleted, seen.rev) == ("", True, 8)


@pytest.mark.parametrize(("first", "is_shown"), [(5, True), (6, False)])
@pytest.mark.parametrize("kind", ["edit", "reaction"])
def test_view_hides_changes_of_messages_before_the_join(
    kind: str, first: int, is_shown: bool
) -> None:
    """The entry keeps its position; the text is removed."""
    view = View({}, frozenset(), Reader(Seq(first), Seq(9)))
    entry = Message(8, 1008, "c", "M8", "alice", "r8", kind, "two", target=5)
    wanted = entry if is_shown else build_tombstone(entry, 0)

    assert seen_in_log(view, entry) == wanted
    assert view.render_message(entry, NOW) == wanted
