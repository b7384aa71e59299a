"""Events in lanes: many at once, and those of a chat one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.webhooks.hot import PendingEvent
from chatserver.features.webhooks.worker import split_lanes
from chatserver.protocol.webhook_messages import HookEvent, encode


@given(st.lists(st.sampled_from(["c1", "c2", "d-3", "g-4"]), max_size=40), st.integers(1, 8))
def test_split_lanes_keeps_the_events_of_a_chat_in_order(chats: list[str], count: int) -> None:
    """Each event is in one lane, and a chat's in the same one, as they came."""
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
        mine = [event for event in events if chat.encode() + b"." in event.event]
        homes = [lane for lane in lanes if mine[0] in lane]
        assert [event for event in homes[0] if event in mine] == mine
