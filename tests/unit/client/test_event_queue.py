"""The queue of events that a busy application has yet to take."""

from __future__ import annotations

from chatserver.client.event_queue import EventQueue
from chatserver.client.events import (
    Acked,
    Connected,
    Disconnected,
    Event,
    SignalReceived,
    StoredUpto,
)
from chatserver.client.state import QueuedEvent

TYPING = SignalReceived("typing", "bob", "c1", {"on": True})
EVENTS_MAX = 3


def acked(ref: str) -> Acked:
    return Acked(ref, "c1", 1, 1, "m1", False, "hot")


def filled() -> EventQueue:
    """A queue that is full."""
    untaken = EventQueue(EVENTS_MAX)
    for number in range(EVENTS_MAX):
        untaken.put(QueuedEvent(acked(f"r{number}"), None))
    return untaken


def take_all(untaken: EventQueue) -> list[Event]:
    found = []
    while untaken:
        found.append(untaken.take())
    return found[EVENTS_MAX:]


def test_untaken_events_come_in_order_while_there_is_room() -> None:
    """Nothing gives way before it has to."""
    untaken = EventQueue(EVENTS_MAX)
    news: list[Event] = [Connected("alice"), TYPING, acked("r1")]

    for event in news:
        untaken.put(QueuedEvent(event, None, is_known=True))

    assert [untaken.take() for _ in news] == news
    assert not untaken


def test_untaken_signals_and_known_acks_give_way_at_the_bound() -> None:
    """An application that takes nothing costs no more memory, however long it does so."""
    untaken = filled()
    assert untaken.is_full

    for number in range(1000):
        untaken.put(QueuedEvent(TYPING, None))
        untaken.put(QueuedEvent(acked(f"known-{number}"), None, is_known=True))

    assert len(untaken) == EVENTS_MAX
    assert take_all(untaken) == []


def test_untaken_states_are_told_as_they_are_at_the_end() -> None:
    """Of the connection and of what is stored the newest word counts."""
    untaken = filled()

    for number in range(1000):
        untaken.put(QueuedEvent(Disconnected("gone", 1.0), None))
        untaken.put(QueuedEvent(Connected("alice"), None))
        untaken.put(QueuedEvent(StoredUpto("c1", number), None))
        untaken.put(QueuedEvent(StoredUpto("c2", number), None))

    assert len(untaken) == EVENTS_MAX
    assert take_all(untaken) == [Connected("alice"), StoredUpto("c1", 999), StoredUpto("c2", 999)]


def test_untaken_ack_that_no_call_returned_is_kept_beyond_the_bound() -> None:
    """No later call would report it."""
    untaken = filled()

    untaken.put(QueuedEvent(acked("posted"), None))

    assert take_all(untaken) == [acked("posted")]
