"""The queue of events that a busy application has not read yet."""

from __future__ import annotations

from chatserver.client.client_state import QueuedEvent
from chatserver.client.event_queue import EventQueue
from chatserver.client.events import (
    Acked,
    Connected,
    Disconnected,
    Event,
    SignalReceived,
    StoredUpto,
)

TYPING = SignalReceived("typing", "bob", "c1", {"on": True})
EVENTS_MAX = 3


def acked(ref: str) -> Acked:
    return Acked(ref, "c1", 1, 1, "m1", False, "hot")


def full_queue() -> EventQueue:
    """Return a queue that is full."""
    queue = EventQueue(EVENTS_MAX)
    for number in range(EVENTS_MAX):
        queue.put(QueuedEvent(acked(f"r{number}"), None))
    return queue


def pop_added(queue: EventQueue) -> list[Event]:
    found = []
    while queue:
        found.append(queue.pop())
    return found[EVENTS_MAX:]


def test_events_are_returned_in_order_until_the_queue_is_full() -> None:
    """No event is dropped before the queue is full."""
    queue = EventQueue(EVENTS_MAX)
    incoming: list[Event] = [Connected("alice"), TYPING, acked("r1")]

    for event in incoming:
        queue.put(QueuedEvent(event, None, is_known=True))

    assert [queue.pop() for _ in incoming] == incoming
    assert not queue


def test_full_queue_drops_signals_and_known_acks() -> None:
    """The queue of an application that reads no events stays bounded."""
    queue = full_queue()
    assert queue.is_full

    for number in range(1000):
        queue.put(QueuedEvent(TYPING, None))
        queue.put(QueuedEvent(acked(f"known-{number}"), None, is_known=True))

    assert len(queue) == EVENTS_MAX
    assert pop_added(queue) == []


def test_full_queue_keeps_the_newest_connection_and_stored_state() -> None:
    """Older events of the same kind are replaced."""
    queue = full_queue()

    for number in range(1000):
        queue.put(QueuedEvent(Disconnected("gone", 1.0), None))
        queue.put(QueuedEvent(Connected("alice"), None))
        queue.put(QueuedEvent(StoredUpto("c1", number), None))
        queue.put(QueuedEvent(StoredUpto("c2", number), None))

    assert len(queue) == EVENTS_MAX
    assert pop_added(queue) == [Connected("alice"), StoredUpto("c1", 999), StoredUpto("c2", 999)]


def test_full_queue_keeps_acks_that_no_call_returned() -> None:
    """The application has no other way to learn of these acks."""
    queue = full_queue()

    queue.put(QueuedEvent(acked("posted"), None))

    assert pop_added(queue) == [acked("posted")]
