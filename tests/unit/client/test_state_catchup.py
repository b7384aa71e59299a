"""Catching up: gaps, large chats, epochs and restarts that the property test does not reach."""

from __future__ import annotations

from collections.abc import Sequence

from chatserver.client import events, saved_state
from chatserver.client.client_state import ClientState, QueuedEvent
from tests.unit.client.device import Device, Fields, entry, page


def test_readable_membership_between_unreadable_ones_is_delivered_in_order() -> None:
    """The user left and rejoined twice; history starts at the last join."""
    device = Device()
    ours: Fields = {"kind": "member", "user": "alice", "body": ""}
    device.event(1, 18, role="", **ours)
    device.event(2, 21, role="member", **ours)
    device.event(3, 22)
    device.answer(33, 34)  # the second membership has ended by now
    assert device.bodies() == ["text 22"]

    device.event(4, 23)
    device.event(5, 24, role="", **ours)
    assert device.bodies() == ["text 22", "text 23"]
    assert [event.change.seq for event in device.events_of(events.MemberChanged)] == [18, 21, 24]
    for request in device.sent("history"):
        device.receive(**page(request, 33, 34))
    assert device.bodies() == ["text 22", "text 23"]  # entries after the gap wait

    device.event(6, 33)
    device.answer(33, 34)
    assert device.bodies() == ["text 22", "text 23", "text 33", "text 34"]
    skipped = [(event.after, event.upto) for event in device.events_of(events.Skipped)]
    assert skipped == [(18, 20), (24, 32)]


def test_large_chat_is_read_from_its_position_on() -> None:
    """Its events have no inbox seq; missed entries are read from the history, in order."""
    device = Device(large=({"chat": "big", "seq": 5},))
    device.event(0, 6, "big")
    device.event(0, 8, "big")
    request = device.answer(7, 8)
    assert request["after"] == 6
    assert device.bodies() == ["text 6", "text 7", "text 8"]

    device.disconnect()
    assert device.state.build_hello("token")["large"] == {"big": 8}
    device.welcome(large=[{"chat": "big", "seq": 9}])
    device.answer(9)
    assert device.bodies()[-1] == "text 9"


def test_entries_before_the_start_of_history_are_skipped() -> None:
    """A user who rejoins does not receive messages from the time between."""
    device = Device()
    device.event(1, 3)
    device.event(2, 9)
    device.answer(8, 9)

    assert device.bodies() == ["text 3", "text 8", "text 9"]
    assert device.events_of(events.Skipped) == [events.Skipped("c1", 3, 7)]


def test_unavailable_history_delays_messages_for_seconds_only() -> None:
    """An unavailable tier does not stop a chat (P9)."""
    device = Device()
    device.event(1, 3)
    device.event(2, 5)
    for _ in range(5):
        device.refuse("history", "unavailable", temporary=True)
        device.advance(60)

    device.events += device.state.pop_events()
    assert device.events_of(events.Skipped) == [events.Skipped("c1", 3, 4)]
    assert device.bodies() == ["text 3", "text 5"]
    assert device.chat.needs_history
    assert device.sent("history") == []


def test_long_absence_reads_the_newest_entries_and_reports_skipped_ones() -> None:
    """The number of entries to catch up is limited."""
    device = Device(fill_max=3)
    device.add(1)
    top = {"chat": "c1", "kind": "group", "top": 10}
    device.receive(type="too_long", cursor={"epoch": "e1", "seq": 50}, chats=[top])
    request = device.answer(8, 9, 10)
    assert request["after"] == 7

    assert device.events_of(events.Skipped) == [events.Skipped("c1", 1, 7)]
    assert device.bodies() == ["text 1", "text 8", "text 9", "text 10"]


def test_kept_entries_are_the_newest() -> None:
    """A busy chat costs no more memory than a quiet one."""
    device = Device(entries_max=3)
    device.add(*range(1, 8))

    assert [one.seq for one in device.chat.log.entries()] == [5, 6, 7]


def reset(device: Device, *chats: Fields) -> None:
    device.receive(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=list(chats))


def restart(device: Device, unconsumed: Sequence[QueuedEvent] = ()) -> Device:
    """Return the connected device of the next process."""
    position = saved_state.encode_position(device.state, unconsumed)
    operations = saved_state.encode_outbox(device.state)
    other = Device()
    other.state = ClientState("phone")
    saved_state.restore(other.state, position, operations)
    cursor = device.state.cursor
    assert cursor is not None
    other.welcome(cursor.epoch, cursor.seq)
    return other


def test_new_epoch_drops_a_copy_with_a_lost_change() -> None:
    """An edit that Redis lost is no longer shown, though the message still exists."""
    device = Device()
    device.add(1, 2)
    edited = [
        entry(1, body="edited", rev=3, edited_seq=3),
        entry(2),
        entry(3, target=1, kind="edit"),
    ]
    device.state.apply_history({"chat": "c1", "messages": edited}, is_newest=True)
    log = device.chat.log
    assert log.messages()[0].body == "edited"

    reset(device)
    device.answer(2, more=True)

    assert [message.body for message in log.messages()] == ["text 2"]
    assert device.events_of(events.EntriesWithdrawn) == [events.EntriesWithdrawn("c1", (3,), 2)]


def test_operation_resent_in_a_new_epoch_is_also_resent_by_the_next_process() -> None:
    """An ack from an old epoch does not prove that the operation is done in the new one."""
    device = Device()
    device.ack(device.enqueue(), 9)
    reset(device)

    other = restart(device)

    assert [frame["ref"] for frame in other.sent("send")] == ["r"]


def test_pending_read_of_a_chat_is_repeated_by_the_next_process() -> None:
    """A snapshot contains only the newest chats; the others are compared, now or later."""
    device = Device()
    device.add(1)
    device.receive(type="too_long", cursor={"epoch": "e1", "seq": 50}, chats=[])
    assert [request["after"] for request in device.sent("history")] == [1]

    other = restart(device)

    assert [request["after"] for request in other.sent("history")] == [1]


def test_events_pushed_again_to_the_next_process_are_not_skipped() -> None:
    """The user has left: history is forbidden, but the inbox still has the unconsumed entries."""
    device = Device()
    device.add(1)
    for seq in (2, 3):
        frame = {"type": "event", "epoch": "e1", "seq": seq, "cs": seq, "chat": "c1"}
        fields = {**frame, "kind": "message", "message": entry(seq)}
        device.state.handle_frame(device.connection, fields, device.now)
    unconsumed = device.state.pop_queued_events()

    other = restart(device, unconsumed)
    other.refuse("history", "forbidden")
    other.event(2, 2)
    other.event(3, 3)

    assert other.bodies() == ["text 2", "text 3"]
    assert not other.events_of(events.Skipped)


def test_gap_that_no_event_fills_is_skipped_after_some_attempts() -> None:
    """History is forbidden, and the server does not push the entries again."""
    device = Device()
    device.add(1)
    device.event(2, 3)
    other = restart(device)

    for _ in range(5):
        other.refuse("history", "forbidden")
        other.advance(60)

    assert other.events_of(events.Skipped) == [events.Skipped("c1", 1, 3)]
    other.event(3, 4)
    assert other.bodies() == ["text 4"]


def test_message_after_a_gap_is_read_by_the_next_process() -> None:
    """The cursor is past the message, but it was not delivered."""
    device = Device()
    device.add(1)
    device.event(2, 3)
    assert device.bodies() == ["text 1"]

    other = restart(device)
    other.answer(2, 3)

    assert other.bodies() == ["text 2", "text 3"]


def test_replaced_message_is_withdrawn_and_the_new_one_delivered() -> None:
    """In the new epoch, the same seq is another message with another mid."""
    device = Device()
    device.add(1, 2)

    reset(device)
    (request,) = device.sent("history")
    answer = page(request, 1)
    answer["messages"].append(entry(2, mid="other", body="another"))
    device.receive(**answer)

    assert device.events_of(events.EntriesWithdrawn) == [events.EntriesWithdrawn("c1", (2,), 1)]
    assert device.bodies() == ["text 1", "text 2", "another"]


def test_chat_that_becomes_large_and_small_again_has_no_gap() -> None:
    """Events continue after each change; `hello` names only chats that are large now."""
    device = Device()
    device.add(1)
    info = {"chat": "c1", "kind": "group", "members": ["alice"]}
    fields = {"type": "event", "epoch": "e1", "kind": "chat", "chat": "c1"}
    device.receive(**fields, seq=2, info={**info, "large": True, "since": 1})
    device.event(0, 2)
    assert device.state.build_hello("token")["large"] == {"c1": 2}

    device.receive(**fields, seq=3, info={**info, "since": 2})
    device.event(4, 3)

    assert "large" not in device.state.build_hello("token")
    assert device.bodies() == ["text 1", "text 2", "text 3"]
    assert device.sent("history") == []


def test_removal_from_a_large_chat_removes_its_position() -> None:
    """The entry of the removal arrives in the inbox."""
    device = Device(large=({"chat": "c1", "seq": 0},))
    removal = {"seq": 1, "ts": 1, "chat": "c1", "mid": "m1", "sender": "bob", "ref": "r1"}
    removal |= {"kind": "member", "body": "", "user": "alice", "role": ""}

    device.receive_other(1, "member", cs=1, message=removal)

    assert "large" not in device.state.build_hello("token")


def test_large_chat_that_is_not_compared_yet_is_not_in_hello() -> None:
    """The server would take a position of another epoch for one of its own."""
    device = Device(large=({"chat": "c1", "seq": 0},))
    device.event(0, 1)
    device.event(0, 2)
    assert device.state.build_hello("token")["large"] == {"c1": 2}

    reset(device, {"chat": "c1", "top": 1})
    assert "large" not in device.state.build_hello("token")
    device.answer(1)

    assert device.state.build_hello("token")["large"] == {"c1": 1}


def test_entries_after_a_gap_are_delivered_in_a_new_epoch() -> None:
    """Entries between the last delivered one and the first comparable one are delivered as new."""
    device = Device(large=({"chat": "c1", "seq": 1},))
    device.event(1, 4)
    assert device.bodies() == []

    reset(device, {"chat": "c1", "top": 3})
    request = device.sent("history")[-1]
    answer = page(request, 2, 3, more=True)
    answer["messages"].append(entry(4, mid="other", body="another"))
    device.receive(**answer)

    assert device.events_of(events.Skipped) == [events.Skipped("c1", 0, 1)]
    assert device.bodies() == ["text 2", "text 3", "another"]


def test_entries_before_the_first_delivered_one_are_kept_only_without_a_gap() -> None:
    """Events of a large chat may overtake inbox events, so a change may be missing in between."""
    device = Device()
    device.event(0, 7)
    device.event(1, 4)
    device.event(2, 5, kind="edit", target=4, body="first")
    assert [kept.seq for kept in device.chat.log.entries()] == [7]

    device.event(3, 6, kind="edit", target=4, body="second")

    assert [kept.seq for kept in device.chat.log.entries()] == [6, 7]
    assert device.bodies() == ["text 7"]


def test_delivery_of_a_large_chat_starts_with_the_inbox_events_that_were_missed() -> None:
    """The chat became large after its first entries, which are in the inbox."""
    device = Device()
    device.event(2, 1)  # inbox event 1 is missing
    device.event(0, 3)
    assert device.bodies() == []

    (request,) = device.sent("sync")
    fields = {"type": "event", "epoch": "e1", "chat": "c1", "kind": "message"}
    inbox = [{**fields, "seq": n, "cs": n, "message": entry(n)} for n in (1, 2)]
    device.receive(type="page", id=request["id"], events=inbox, more=False)
    device.answer(3)

    assert device.bodies() == ["text 1", "text 2", "text 3"]


def test_entry_pushed_before_the_chat_became_large_is_read() -> None:
    """The inbox has only the event that the chat is large now."""
    device = Device()
    device.receive_other(2, "info")  # inbox event 1 is missing
    device.event(0, 3)
    (request,) = device.sent("sync")
    info = {"chat": "c1", "kind": "group", "large": True, "since": 2}
    fields = {"type": "event", "epoch": "e1", "chat": "c1", "kind": "chat"}
    inbox = [{**fields, "seq": 1, "info": info}]
    device.receive(type="page", id=request["id"], events=inbox, more=False)

    device.answer(3)

    assert device.bodies() == ["text 3"]


def test_chat_that_was_only_pushed_needs_its_history_after_a_snapshot() -> None:
    """The application reads the entries that no event delivers any more."""
    device = Device()
    device.event(2, 1)
    device.event(0, 3)

    summary = {"chat": "c1", "kind": "group", "top": 3}
    device.receive(type="too_long", cursor={"epoch": "e1", "seq": 9}, chats=[summary])

    assert device.events_of(events.Restarted) == [events.Restarted(False, ("c1",))]


def test_marks_of_a_lost_entry_are_taken_from_the_server_in_a_new_epoch() -> None:
    """An entry that the user read may be lost, and its seq may now be another entry."""
    device = Device()
    device.event(1, 5, sender="alice")
    chat = device.chat
    assert chat.read == 5

    reset(device)
    answer = page(device.sent("history")[-1], 6, more=True)
    answer["messages"].insert(0, entry(5, mid="other"))
    device.receive(**answer)
    assert chat.read == 4
    device.state.apply_chat_list({"chats": [{"chat": "c1", "top": 6, "read": 3, "unread": 3}]})

    assert (chat.read, chat.unread) == (3, 3)


def test_older_page_across_a_membership_gap_is_kept() -> None:
    """The gap stays unread; a page that is not adjacent is ignored."""
    device = Device()
    newest, older = [entry(20), entry(21)], [entry(3), entry(4)]
    device.state.apply_history({"chat": "c1", "messages": newest}, is_newest=True)
    log = device.chat.log

    device.state.apply_history({"chat": "c1", "messages": older}, is_newest=False, before=10)
    assert (log.bottom, log.shown) == (20, 21)
    device.state.apply_history({"chat": "c1", "messages": older}, is_newest=False, before=20)

    assert [message.seq for message in log.messages()] == [3, 4, 20, 21]
    assert (log.bottom, log.shown, log.has_gap) == (3, 21, False)
    device.event(1, 22)
    assert [message.seq for message in log.messages()] == [3, 4, 20, 21, 22]


def test_chat_outside_of_a_snapshot_hides_messages_deleted_on_another_device() -> None:
    """The snapshot lists the hidden messages of its own chats only; the history has the others."""
    device = Device(entries_max=2)
    device.add(*range(1, 4))
    device.receive(type="too_long", cursor={"epoch": "e1", "seq": 50}, chats=[])
    request = device.answer()
    assert request["after"] == 3
    (request,) = device.sent("history")
    assert request["before"] == 4

    deleted = {"body": "", "deleted": True}
    names = {"type": "page", "id": request["id"], "chat": "c1", "tier": "hot", "more": True}
    device.receive(**names, messages=[entry(1, **deleted), entry(2, **deleted), entry(3)])

    assert device.events_of(events.MessagesHidden) == [events.MessagesHidden("c1", (2,))]
    kept = device.chat.log.messages()
    assert [(message.seq, message.body) for message in kept] == [(2, ""), (3, "text 3")]
    assert device.sent("history") == []


def test_chat_without_known_entries_reports_skipped_ones_in_a_new_epoch() -> None:
    """Nothing can be compared: any message up to the previous position may be a new one."""
    device = Device(large=({"chat": "big", "seq": 4},))
    device.receive(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=[])
    device.answer(2, 3, 4, 5, more=True)

    assert device.events_of(events.Skipped) == [events.Skipped("big", 0, 4)]
    assert device.bodies() == ["text 5"]
