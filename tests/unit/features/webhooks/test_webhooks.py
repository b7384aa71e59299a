"""Delivery of events in parallel lanes, in order for each chat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.webhooks.hot import PendingEvent
from chatserver.features.webhooks.worker import split_lanes
from chatserver.protocol.webhook_messages import HookEvent, encode


@given(st.lists(st.sampled_from(["c1", "c2", "d-3", "g-4"]), max_size=40), st.integers(1, 8))
def test_split_lanes_keeps_the_events_of_a_chat_in_order(chats: list[str], count: int) -> None:
    """Each event is in one lane, and all events of a chat are in the same lane."""
    events = [
        PendingEvent(f"{n}-0", 0, encode(HookEvent(f"{chat}.{n}", "message", n)))
        for n, chat in enumerate(chats)
    ]

    lanes = split_lanes(events, count)

    assert len(lanes) <= count
    assert sorted(event.entry for lane in lanes for event in lane) == sorted(
        event.entry for event in events
    )
    for chat in set(chats):
        chat_events = [event for event in events if chat.encode() + b"." in event.event]
        chat_lanes = [lane for lane in lanes if chat_events[0] in lane]
        assert [event for event in chat_lanes[0] if event in chat_events] == chat_events
