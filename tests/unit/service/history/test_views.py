"""Views: entries as one reader sees them, from tiers that may lag behind what was acked."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import Seq, Ts
from chatserver.domain.membership import Reader
from chatserver.domain.messages import LogEntry
from chatserver.protocol import codec
from chatserver.protocol.entry_rules import apply_entry, tombstone_of
from chatserver.protocol.frames import Message
from chatserver.service.history.views import NO_CHANGES, View

ONE = Message(5, 1005, "c", "M5", "alice", "r5", "text", "one")
EDIT = Message(8, 1008, "c", "M8", "alice", "r8", "edit", "two", target=5)
EDITED = apply_entry(ONE, EDIT)
NOW = 2000.0


def entry_of(message: Message) -> LogEntry:
    """An entry as the log has it."""
    return LogEntry(Seq(message.seq), Ts(message.ts), codec.tail_of(message))


def seen_in_log(view: View, message: Message) -> Message:
    """Entries that a reader of the log sees."""
    tail = view.render_entry(entry_of(message), NOW)
    return codec.decode_message(codec.join_message(message.seq, message.ts, tail))


def test_view_without_changes_shows_what_is_there() -> None:
    """The same bytes, unparsed."""
    entry = entry_of(ONE)

    assert NO_CHANGES.render_entry(entry, NOW) is entry.tail
    assert NO_CHANGES.render_message(ONE, NOW) is ONE


def test_view_lays_changes_over_both_tiers() -> None:
    """A change that was acked is seen, whatever a tier still has."""
    view = View({5: codec.encode(EDITED)}, frozenset())

    assert seen_in_log(view, ONE) == EDITED
    assert view.render_message(ONE, NOW) == EDITED


def test_view_prefers_a_stored_message_that_is_newer() -> None:
    """The warm tier was read after the overlay, and may have caught up."""
    view = View({5: codec.encode(EDITED)}, frozenset())
    newer = tombstone_of(EDITED, 9)

    assert view.render_message(newer, NOW) == newer


def test_view_takes_the_text_from_an_edit_that_was_replaced() -> None:
    """The overlay has no more of it than that it is gone."""
    view = View({8: b"11"}, frozenset())

    assert view.render_message(EDIT, NOW) == tombstone_of(EDIT, 11)


@pytest.mark.parametrize("message", [ONE, EDIT])
def test_view_hides_a_message_and_its_edits(message: Message) -> None:
    """A message that a user deleted for themselves is a tombstone to them, in both tiers."""
    view = View({}, frozenset({5}))

    assert seen_in_log(view, message) == tombstone_of(message, 0)
    assert view.render_message(message, NOW) == tombstone_of(message, 0)


def test_view_hides_nothing_else() -> None:
    """Neither other messages nor reactions, which do not contain its text."""
    view = View({}, frozenset({4, 6}))
    reaction = Message(6, 1006, "c", "M", "bob", "r", "reaction", "x", target=5)
    hidden = View({}, frozenset({5}))

    assert seen_in_log(view, ONE) == ONE
    assert seen_in_log(hidden, reaction) == reaction


def test_view_of_an_expired_message_is_its_tombstone() -> None:
    """Changed or not."""
    ending = Message(5, 1005, "c", "M5", "alice", "r5", "text", "one", expires_at=1000)
    edited = apply_entry(ending, EDIT)
    view = View({5: codec.encode(edited)}, frozenset())

    for seen in (seen_in_log(view, ending), view.render_message(ending, NOW)):
        assert (seen.body, seen.deleted, seen.rev) == ("", True, 8)


@pytest.mark.parametrize(("first", "is_shown"), [(5, True), (6, False)])
@pytest.mark.parametrize("kind", ["edit", "reaction"])
def test_view_withholds_changes_of_messages_from_before_the_reader(
    kind: str, first: int, is_shown: bool
) -> None:
    """The entry keeps its position; the text of the unreadable message is removed."""
    view = View({}, frozenset(), Reader(Seq(first), Seq(9)))
    entry = Message(8, 1008, "c", "M8", "alice", "r8", kind, "two", target=5)
    wanted = entry if is_shown else tombstone_of(entry, 0)

    assert seen_in_log(view, entry) == wanted
    assert view.render_message(entry, NOW) == wanted
