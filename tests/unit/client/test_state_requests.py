"""Requests and their errors in the client state; the property test covers the rest."""

from __future__ import annotations

import pytest

from chatserver.client import events
from chatserver.client.client_state import ANSWER_S
from chatserver.client.outbox import PROBE_AGAIN_S, PROBE_S, OutboxEntry
from chatserver.errors import (
    BadRequest,
    ChatError,
    NotFound,
    Overloaded,
    Unavailable,
)
from tests.unit.client.device import Device, entry, failure, page


def test_paused_device_receives_responses_and_no_events() -> None:
    """An application that takes no events costs no memory and loses nothing."""
    device = Device()
    device.state.pause(device.now, is_paused=True)
    number = device.state.send_request({"type": "chats"}, device.now, device.now + 5)
    device.add(1)
    device.receive(type="page", id=number, chats=[], more=False)
    assert device.bodies() == []
    assert [found for found, _ in device.state.pop_answers()] == [number]
    assert device.sent("sync") == []

    device.state.pause(device.now, is_paused=False)

    (request,) = device.sent("sync")
    assert request["cursor"] == {"epoch": "e1", "seq": 0}
    place = {"type": "event", "kind": "message", "epoch": "e1", "chat": "c1"}
    found = [{**place, "seq": 1, "cs": 1, "message": entry(1)}]
    device.receive(type="page", id=request["id"], events=found, cursor={}, more=False)
    assert device.bodies() == ["text 1"]


def test_request_is_retried_on_the_next_connection_until_its_deadline() -> None:
    """A disconnect costs the caller only time, up to the deadline of the request."""
    device = Device()
    number = device.state.send_request({"type": "chats"}, device.now, device.now + 5)
    assert [frame["id"] for frame in device.sent("chats")] == [number]

    device.disconnect()
    device.welcome()
    assert [frame["id"] for frame in device.sent("chats")] == [number]

    assert device.state.get_next_tick(device.now) == device.now + 5
    device.state.tick(device.now + 5)
    ((found, answer),) = device.state.pop_answers()
    assert found == number
    assert isinstance(answer, Unavailable)


def test_error_has_the_class_of_its_code() -> None:
    """An unknown code is a `ChatError`."""
    device = Device()
    for code in ("not_found", "new_in_v2"):
        device.state.send_request({"type": "history", "chat": "c1"}, device.now, device.now + 5)
        device.refuse("history", code)

    (_, first), (_, second) = device.state.pop_answers()
    assert isinstance(first, NotFound)
    assert type(second) is ChatError


def test_requests_beyond_the_limit_are_refused() -> None:
    """More waiting requests would only cost memory."""
    device = Device(requests_max=2)
    for _ in range(2):
        device.state.send_request({"type": "chats"}, device.now, device.now + ANSWER_S)

    with pytest.raises(Overloaded):
        device.state.send_request({"type": "chats"}, device.now, device.now + ANSWER_S)


def test_rate_limited_send_is_retried_after_the_servers_delay() -> None:
    """The client waits for `retry_after_ms` of the error."""
    device = Device()
    refusal = failure(device.enqueue(), "rate_limited", temporary=True)

    device.receive(**refusal, retry_after_ms=3000)

    assert device.sent("send") == []
    assert device.state.get_next_tick(device.now) == device.now + 3
    device.state.tick(device.now + 3)
    assert [frame["ref"] for frame in device.sent("send")] == ["r"]
    assert device.events_of(events.Refused) == []


def test_operations_in_a_left_chat_end_when_a_probe_is_refused() -> None:
    """No `stored` arrives for them, and they would fill the outbox until the next epoch."""
    device = Device()
    fields = {"send": {"body": "hello"}, "delete": {"seq": 1, "for": "me"}}
    for number, (type_, more) in enumerate(fields.items(), start=1):
        device.ack(device.enqueue(type_, ref=type_, **more), number)

    device.advance(PROBE_S)
    device.refuse("send", "not_found")
    assert device.events_of(events.Refused) == []

    device.event(1, 2, sender="bob", kind="member", user="alice", role="", body="")
    assert device.sent("send") == []
    device.advance(PROBE_S)
    device.refuse("send", "not_found")

    assert [event.ref for event in device.events_of(events.Refused)] == ["send", "delete"]
    assert list(device.state.outbox) == []


def test_acked_change_of_a_lost_message_ends_when_it_is_refused_in_the_new_epoch() -> None:
    """The request names the lost message, although another one has its seq now."""
    device = Device()
    device.add(1)
    react = device.enqueue("react", seq=1, emoji="👍")
    device.ack(react, 2)
    chats = [{"chat": "c1", "kind": "direct", "top": 1}]
    device.receive(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=chats)
    frames = device.state.pop_frames()
    (asked,) = [frame for frame in frames if frame["type"] == "history"]
    other = {**page(asked), "messages": [entry(1, ref="other", mid="m9")]}
    device.receive(**other)

    (again,) = [frame for frame in frames if frame["type"] == "react"]
    device.receive(**failure(again, "not_found", temporary=False))

    assert react["target_ref"] == again["target_ref"] == "r1"
    assert device.enqueue("react", "r-2", seq=1, emoji="👍")["target_ref"] == "other"
    assert [event.ref for event in device.events_of(events.Refused)] == ["r"]
    assert [operation.ref for operation in device.state.outbox] == ["r-2"]


def test_operation_in_a_rejoined_chat_is_kept() -> None:
    """An error from the time between the memberships does not apply."""
    device = Device()
    device.ack(device.enqueue(), 1)
    for seq, role in ((2, ""), (3, "member")):
        device.event(seq - 1, seq, kind="member", user="alice", role=role, body="")
    device.advance(PROBE_S)
    device.refuse("send", "not_found")

    assert device.events_of(events.Refused) == []
    assert [operation.ref for operation in device.state.outbox] == ["r"]


def test_deletion_for_oneself_is_probed_again_after_rejoining() -> None:
    """No `stored` confirms it, so an error from before the invitation must not end the probes."""
    device = Device()
    fields = {"type": "delete", "chat": "c1", "ref": "r", "seq": 1, "for": "me"}
    device.state.enqueue(OutboxEntry("r", "c1", fields), 0)
    (request,) = device.sent("delete")
    place = {"ref": "r", "seq": 1, "ts": 0, "mid": ""}
    device.receive(type="ack", id=request["id"], dup=False, durability="hot", **place)
    device.now += PROBE_S
    device.state.tick(device.now)
    (early,) = device.sent("delete")
    device.receive(**failure(early, "not_found", temporary=False))

    device.now += PROBE_AGAIN_S
    device.state.tick(device.now)
    (late,) = device.sent("delete")
    device.receive(type="ack", id=late["id"], dup=True, durability="stored", **place)

    assert device.events_of(events.Refused) == []
    assert list(device.state.outbox) == []


@pytest.mark.parametrize(
    ("chat", "wait_s", "is_refused"),
    [
        ("01KAJ5W3N0TBJ8QW6X1V7ZC2YD", 7200, True),
        ("01KAJ5W3N0TBJ8QW6X1V7ZC2YD", 5, False),
        ("d-abc", 7200, False),
    ],
)
def test_companion_message_that_would_wait_for_hours_is_refused(
    chat: str, wait_s: int, is_refused: bool
) -> None:
    """Token limits reset at midnight: a question must not be sent hours later. Others wait."""
    device = Device()
    refusal = failure(device.enqueue(ref="r1", chat=chat), "rate_limited", temporary=True)

    device.receive(**refusal, retry_after_ms=wait_s * 1000)

    assert [event.ref for event in device.events_of(events.Refused)] == ["r1"] * is_refused


@pytest.mark.parametrize("field", ["body", "reply"])
def test_lone_surrogate_is_refused_before_sending(field: str) -> None:
    """A text that no connection can carry is the caller's error; the client continues."""
    device = Device()
    fields = {"type": "send", "chat": "c1", "ref": "r", "body": "b", field: "cut \ud83d"}

    with pytest.raises(BadRequest, match="lone surrogate"):
        device.state.enqueue(OutboxEntry("r", "c1", fields), device.now)
    with pytest.raises(BadRequest, match="lone surrogate"):
        device.state.send_request(fields, device.now, device.now + 10)

    assert device.state.pop_frames() == []
    assert len(device.state.outbox) == 0


def test_request_that_lost_a_race_is_retried_automatically() -> None:
    """A temporary conflict does not reach the caller before the deadline."""
    device = Device()
    number = device.state.send_request(
        {"type": "leave", "chat": "c1", "ref": "r"}, device.now, 110.0
    )
    (first,) = device.sent("leave")
    lost = {"code": "conflict", "message": "changed", "temporary": True, "retry_after_ms": 100}

    device.receive(type="error", id=first["id"], **lost)
    assert (device.sent("leave"), device.state.pop_answers()) == ([], [])
    assert device.state.get_next_tick(device.now) == pytest.approx(100.1)
    device.now = 100.2
    device.state.tick(device.now)
    (again,) = device.sent("leave")
    device.receive(type="ok", id=again["id"])

    assert [n for n, _ in device.state.pop_answers()] == [number]
