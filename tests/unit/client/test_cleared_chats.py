"""Chats that the user has cleared, on this device or another."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.client import cleared_chats, events
from chatserver.client.chat import Chat
from chatserver.client.cleared_chats import ClearedChats, load_cleared_chats
from chatserver.client.http.http_calls import PreferencesPage
from chatserver.errors import ChatError, Forbidden, Unavailable
from chatserver.protocol.frames import ChatPreferences
from tests.unit.client.device import Device, entry, page


def filled(count: int) -> Device:
    """Return a device with the messages of a chat."""
    device = Device()
    device.add(*range(1, count + 1))
    return device


def chat_of(device: Device) -> Chat:
    return device.chat


def shown(device: Device) -> list[int]:
    return [message.seq for message in chat_of(device).log.messages()]


def test_cleared_messages_are_not_shown_and_not_unread() -> None:
    """An older position changes nothing; the next message is shown."""
    device = filled(3)

    assert device.state.clear_chat("c1", 2)
    after_first = (shown(device), chat_of(device).unread)
    assert device.state.clear_chat("c1", 3)
    assert not device.state.clear_chat("c1", 1)
    device.add(4)

    assert after_first == ([3], 1)
    assert (shown(device), chat_of(device).unread, chat_of(device).cleared_upto) == ([4], 1, 3)


def test_chat_list_does_not_restore_cleared_messages() -> None:
    """A cleared message is neither the chat's last message nor counted as unread."""
    device = filled(1)
    device.state.clear_chat("c1", 5)

    summary = {"chat": "c1", "kind": "group", "top": 6, "unread": 6, "last": entry(5)}
    device.state.apply_chat_list({"chats": [summary]})

    assert (chat_of(device).last, chat_of(device).unread) == (None, 1)


def test_chat_that_is_loaded_later_is_cleared() -> None:
    """The cleared seq is known before the chat is loaded."""
    device = Device()

    assert device.state.clear_chat("c1", 2)
    older = [entry(seq) for seq in (1, 2, 3)]
    device.state.apply_history({"chat": "c1", "messages": older}, is_newest=True)

    assert shown(device) == [3]


def test_missed_messages_that_are_cleared_have_no_text_in_events() -> None:
    """A page requested before another device cleared the chat still has their texts."""
    device = filled(1)
    device.state.pop_frames()
    device.event(2, 4)
    (request,) = device.sent("history")

    device.state.clear_chat("c1", 3)
    device.receive(**page(request, 2, 3))

    assert device.bodies() == ["text 1", "", "", "text 4"]
    assert shown(device) == [4]


def test_signals_clear_the_chats_that_are_loaded() -> None:
    """The application gets one event for each new position."""
    device = filled(2)
    reported: list[events.Event] = []
    cleared = ClearedChats(device.state, None, reported.extend)

    def signal(**fields: Any) -> events.Event:
        more: dict[str, object] = {"preferences": {"chat": "c1", "rev": 1, **fields}}
        return events.SignalReceived("chat_preferences", "alice", None, more)

    cleared.apply_events([signal(), signal(cleared_upto=2), signal(cleared_upto=1)])
    cleared.apply_events([signal(chat="other", cleared_upto=9)])

    assert reported == [events.ChatCleared("c1", 2)]
    assert shown(device) == []


async def test_positions_are_loaded_by_page_after_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A temporary error is retried; any other error ends the load."""
    monkeypatch.setattr(cleared_chats, "RETRY_S", 0.0)
    requested: list[str | None] = []
    responses: list[PreferencesPage | ChatError] = [
        PreferencesPage([ChatPreferences("c1")], "c1"),
        Unavailable("busy"),
        PreferencesPage([ChatPreferences("c2")], None),
        Forbidden("no"),
    ]

    async def list_page(*, after: str | None, limit: int) -> PreferencesPage:
        requested.append(after)
        response = responses.pop(0)
        if isinstance(response, ChatError):
            raise response
        return response

    await load_cleared_chats(list_page)
    await load_cleared_chats(list_page)

    assert requested == [None, "c1", "c1", None]
    assert responses == []
