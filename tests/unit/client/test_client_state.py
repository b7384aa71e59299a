"""Chats, unread counts and presence in the client state; the property test covers the rest."""

from __future__ import annotations

import pytest

from chatserver.client import events, saved_state
from chatserver.client.client_state import ClientState
from chatserver.domain.write_restrictions import MUTE_OVER
from chatserver.errors import (
    CorruptData,
    Overloaded,
)
from chatserver.protocol.frames import LARGE_MAX, Cursor
from tests.unit.client.device import Device, entry, page


def test_chat_has_its_muted_members_and_slow_mode() -> None:
    """The chat's info has both, and entries change them; the chat list has neither."""
    device = Device()
    info = {"chat": "c1", "kind": "group", "members": ["alice", "bob"], "slow_s": 5}
    device.receive_other(1, "chat", info={**info, "muted": {"bob": 0}})
    chat = device.chat
    assert (chat.slow_s, chat.is_muted("bob", 1e9), chat.is_muted("alice", 1e9)) == (5, True, False)

    device.event(2, 1, kind="member", user="bob", role="member", body="", muted_until=MUTE_OVER)
    device.event(3, 2, kind="member", user="carol", role="member", body="", muted_until=2_000)
    device.event(4, 3, kind="update", body='{"slow_s":0}')
    device.event(5, 4, kind="update", body="", name="Team")
    device.event(6, 5, kind="member", user="carol", role="admin", body="")
    summary = {**info, "top": 5}
    del summary["slow_s"]
    device.state.apply_chat_list({"chats": [summary]})
    assert (chat.slow_s, chat.muted) == (0, {"carol": 2_000})
    assert [chat.is_muted("carol", now) for now in (1_999, 2_001)] == [True, False]

    device.event(7, 6, kind="member", user="carol", role="", body="")
    assert chat.muted == {}


def test_unread_counts_messages_after_the_read_mark() -> None:
    """Marks only advance; a sender has read their own messages."""
    device = Device()
    device.add(1, 2)
    chat = device.chat
    assert chat.unread == 2

    marks = {"user": "alice", "read": 1}
    device.receive_other(3, "read", read=marks)
    assert (chat.read, chat.unread) == (1, 1)
    device.event(4, 3, sender="alice")
    assert chat.unread == 0
    marks = {"user": "alice", "read": 2}
    device.receive_other(5, "read", read=marks)
    assert chat.read == 3


def test_change_of_a_message_does_not_advance_the_read_mark() -> None:
    """Only a new message proves that its sender has read the messages before it."""
    device = Device()
    device.add(1, 2, 3)
    for number, sender in enumerate(("alice", "bob"), start=4):
        device.event(number, number, sender=sender, kind="reaction", target=1, body="👍")
    device.event(6, 6, sender="alice", kind="member", user="alice", role="member", body="")
    chat = device.chat

    assert (chat.read, chat.unread) == (0, 3)
    assert chat.marks["bob"].read == 3


def test_unread_does_not_count_deleted_messages() -> None:
    """This holds for messages from events and for messages that the server counted."""
    device = Device()
    device.add(1, 2, 3)
    chat = device.chat
    device.event(4, 4, kind="delete", target=2, body="")
    assert chat.unread == 2

    chat.apply_summary({"chat": "c1", "read": 0, "top": 4, "unread": 2})
    device.event(5, 5, kind="delete", target=1, body="")
    assert chat.unread == 1
    device.receive_other(6, "hidden", hidden=[3])
    assert chat.unread == 0


def test_unread_does_not_count_a_deleted_message_that_is_not_kept() -> None:
    """The server counted it, but the device keeps only the newest entries."""
    device = Device(entries_max=5)
    device.add(1, 2, 3, 4)
    chat = device.chat
    chat.apply_summary({"chat": "c1", "read": 0, "top": 4, "unread": 4})

    device.event(5, 5, kind="delete", target=1, body="")
    device.add(6)

    assert (chat.log.find(1), chat.unread) == (None, 4)


def test_members_and_name_follow_the_entries() -> None:
    """The members and the name of a group are known without a request."""
    device = Device()
    info = {"chat": "c1", "kind": "group", "members": ["alice", "bob"], "roles": {"bob": "owner"}}
    device.receive_other(1, "chat", info=info)
    device.event(2, 1, kind="member", user="carol", role="admin", body="")
    device.event(3, 2, kind="member", user="alice", role="", body="")
    device.event(4, 3, kind="update", name="Trip", body="")

    chat = device.chat
    assert chat.members == {"bob": "owner", "carol": "admin"}
    assert chat.name == "Trip"
    assert [event.change.user for event in device.events_of(events.MemberChanged)] == [
        "carol",
        "alice",
    ]


def test_message_hidden_by_the_user_reads_as_deleted() -> None:
    """The user may delete it for themselves on this device or another."""
    device = Device()
    device.add(1)

    device.receive_other(2, "hidden", hidden=[1])

    (message,) = device.chat.log.messages()
    assert (message.body, message.deleted) == ("", True)
    assert device.events_of(events.MessagesHidden)


def test_message_hidden_before_it_is_received_has_no_text_in_its_event() -> None:
    """Another device deleted it before this one received it in a page of history."""
    device = Device()
    device.add(1)
    device.receive_other(2, "hidden", hidden=[2])
    device.add(3)

    (history,) = device.sent("history")
    device.receive(**page(history, 2, more=False))

    added = [event.message for event in device.events_of(events.MessageAdded)]
    assert [(each.seq, each.body != "", each.deleted) for each in added] == [
        (1, True, False),
        (2, False, True),
        (3, True, False),
    ]


@pytest.mark.parametrize("kind", ["reset", "too_long"])
def test_message_hidden_while_the_device_missed_events_reads_as_deleted(kind: str) -> None:
    """The snapshot contains what the user deleted elsewhere; earlier deletions stay."""
    device = Device()
    device.add(1, 2, 3, 4)
    device.receive_other(5, "hidden", hidden=[1])

    line = {"chat": "c1", "kind": "group", "top": 4, "hidden": [2]}
    cursor = {"epoch": "e2" if kind == "reset" else "e1", "seq": 9}
    device.receive(type=kind, cursor=cursor, chats=[line])
    for history in device.sent("history"):
        device.receive(**page(history, 3, 4, more=True))

    log = device.chat.log
    assert [(each.seq, each.deleted) for each in log.messages()] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
    ]


def test_large_chat_named_by_welcome_and_snapshot_is_read() -> None:
    """A device added while offline also gets the earlier messages."""
    for kind, epoch in (("reset", "e2"), ("too_long", "e1")):
        device = Device()
        device.add(1)
        device.disconnect()
        device.welcome(epoch, 9, large=[{"chat": "c2", "seq": 35}])

        line = {"chat": "c2", "kind": "group", "top": 35}
        device.receive(type=kind, cursor={"epoch": epoch, "seq": 9}, chats=[line])

        (restarted,) = device.events_of(events.Restarted)
        assert restarted.chats == ("c2",), kind


@pytest.mark.parametrize("kind", ["reset", "too_long"])
def test_large_chat_named_only_by_a_snapshot_is_in_the_next_hello(kind: str) -> None:
    """Otherwise the next connection would start at its newest entry and skip earlier ones.

    A user may join a large chat while the device is connected; after a data loss of Redis, the
    snapshot replaces the event of the join.
    """
    device = Device()
    epoch = "e2" if kind == "reset" else "e1"
    line = {"chat": "c1", "kind": "group", "top": 5, "read": 0, "unread": 5}
    cursor = {"epoch": epoch, "seq": 3}
    device.receive(type=kind, cursor=cursor, chats=[line], large=[{"chat": "c1", "seq": 4}])
    assert [event.chats for event in device.events_of(events.Restarted)] == [("c1",)]

    device.disconnect()
    assert device.state.build_hello("token")["large"] == {"c1": 4}

    device.welcome(epoch, 3, large=[{"chat": "c1", "seq": 4}])
    for seq in (5, 6):
        place = {"epoch": epoch, "seq": 0, "cs": seq, "chat": "c1", "kind": "message"}
        device.receive(type="event", message=entry(seq), **place)
    assert device.bodies() == ["text 5", "text 6"]


def test_chat_whose_first_event_is_of_the_lost_epoch_is_read() -> None:
    """Redis may have lost the event of an entry before the first received one."""
    device = Device()
    device.event(1, 2)
    device.event(2, 1, "c2")
    lines = [{"chat": chat, "kind": "group", "top": 2} for chat in ("c1", "c2")]

    device.receive(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=lines)

    (restarted,) = device.events_of(events.Restarted)
    assert restarted.chats == ("c1",)


def test_message_has_no_body_from_its_expiry_on() -> None:
    """The device needs no event to remove the text."""
    device = Device()
    device.event(1, 1, expires_at=500)
    log = device.chat.log

    assert [message.body for message in log.messages(now_s=499.0)] == ["text 1"]
    assert [message.body for message in log.messages(now_s=500.0)] == [""]


def test_event_received_again_is_not_applied() -> None:
    """An event up to the cursor is a repeat, not a reason to sync."""
    device = Device()

    device.add(1, 2, 2, 1)

    assert device.bodies() == ["text 1", "text 2"]
    assert device.state.cursor == Cursor("e1", 2)
    assert device.sent("sync") == []


def test_event_after_a_gap_is_not_applied_and_starts_a_sync() -> None:
    """The events of the gap come first, in the answer to the one `sync`."""
    device = Device()

    device.add(1, 3)

    assert device.bodies() == ["text 1"]
    assert device.state.cursor == Cursor("e1", 1)
    (request,) = device.sent("sync")
    assert request["cursor"] == {"epoch": "e1", "seq": 1}

    place = {"type": "event", "kind": "message", "epoch": "e1", "chat": "c1"}
    found = [{**place, "seq": seq, "cs": seq, "message": entry(seq)} for seq in (2, 3)]
    cursor = {"epoch": "e1", "seq": 3}
    device.receive(type="page", id=request["id"], events=found, cursor=cursor, more=False)

    assert device.bodies() == ["text 1", "text 2", "text 3"]
    assert device.state.cursor == Cursor("e1", 3)
    assert device.sent("sync") == []


def test_event_of_an_unknown_kind_advances_the_cursor() -> None:
    """A newer server does not stop an older client."""
    device = Device()
    device.receive_other(1, "poll", poll={})
    device.receive(type="weather")
    device.event(2, 1)

    assert device.bodies() == ["text 1"]


def test_least_recently_active_chat_is_removed_at_the_limit() -> None:
    """The number of chats in memory is limited."""
    device = Device(chats_max=2)
    for seq, chat in enumerate(("a", "b", "a", "c"), 1):
        device.event(seq, seq, chat)

    assert list(device.state.chats) == ["a", "c"]


def test_presence_subscriptions_are_renewed_after_a_reconnect() -> None:
    """The application subscribes only once."""
    device = Device(watched_max=2)
    device.state.watch(["bob", "carol"])
    device.state.unwatch(["carol"])
    device.disconnect()
    device.state.pop_frames()

    device.welcome()

    assert device.sent("watch") == [{"type": "watch", "users": ["bob"]}]
    with pytest.raises(Overloaded):
        device.state.watch(["carol", "dave"])


def test_subscriptions_to_many_users_are_split_into_frames() -> None:
    """A frame names at most 100 users; no users, no frame."""
    device = Device()
    users = [f"user-{number}" for number in range(230)]

    device.state.watch(users)
    device.state.watch([])
    device.state.unwatch(users)

    frames = device.state.pop_frames()
    assert [(each["type"], len(each["users"])) for each in frames] == [
        ("watch", 100),
        ("watch", 100),
        ("watch", 30),
        ("unwatch", 100),
        ("unwatch", 100),
        ("unwatch", 30),
    ]
    assert [user for each in frames[:3] for user in each["users"]] == users


def test_presence_is_reported_at_once() -> None:
    """Signals have no seq and are not kept."""
    device = Device()

    device.receive(type="signal", kind="presence", state="away", **{"from": "bob"})

    (event,) = device.events_of(events.SignalReceived)
    assert (event.kind, event.sender, event.fields) == ("presence", "bob", {"state": "away"})


@pytest.mark.parametrize("place", [b"", b"[]", b'{"user": 1}'])
def test_corrupt_saved_state_is_refused(place: bytes) -> None:
    """A fresh start would silently lose operations that were not sent."""
    with pytest.raises(CorruptData):
        saved_state.restore(ClientState("phone"), place, None)


def test_hello_names_unstored_chats_and_no_send_is_repeated() -> None:
    """The server sends `stored` for the chats in `hello`; no send is repeated to find out."""
    device = Device()
    for number in (1, 2):
        device.ack(device.enqueue(ref=f"r{number}"), number)

    assert "unstored" not in Device().state.build_hello("token")
    device.disconnect()
    device.now += 60
    assert device.state.build_hello("token")["unstored"] == {"c1": 2}
    device.welcome()
    assert device.sent("send") == []
    device.receive(type="stored", chat="c1", upto=2)
    assert "unstored" not in device.state.build_hello("token")


def test_hello_names_at_most_the_maximum_of_large_chats() -> None:
    """The server would refuse a longer list on each connection."""
    chats = tuple({"chat": f"c{number}", "seq": 1} for number in range(LARGE_MAX + 1))
    device = Device(large=chats)

    assert len(device.state.build_hello("token")["large"]) == LARGE_MAX
