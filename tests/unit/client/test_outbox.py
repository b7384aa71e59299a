"""The outbox keeps operations in order and under one ref until they are stored."""

from __future__ import annotations

import pytest

from chatserver.client.outbox import PROBE_AGAIN_S, PROBE_S, Outbox, OutboxEntry
from chatserver.errors import Conflict, Overloaded


def operation(ref: str, chat: str = "c1", kind: str = "send") -> OutboxEntry:
    return OutboxEntry(ref, chat, {"type": kind, "chat": chat, "ref": ref, "body": ref})


def outbox_of(*refs: str) -> Outbox:
    outbox = Outbox(100)
    for ref in refs:
        outbox.put(operation(ref))
    return outbox


def next_refs(outbox: Outbox, now: float = 0.0, room: int = 64) -> list[str]:
    return [one.ref for one in outbox.next_sends(now, room)]


def position(seq: int) -> tuple[int, int, str]:
    return seq, seq * 1000, f"m{seq}"


def test_operations_are_sent_in_order_within_the_server_limit() -> None:
    """No more operations are in flight than the server allows."""
    outbox = outbox_of("a", "b", "c")

    assert next_refs(outbox, room=2) == ["a", "b"]
    assert next_refs(outbox, room=2) == []
    outbox.record_ack("a", position(1), 0.0, is_stored=False)
    assert next_refs(outbox, room=2) == ["c"]


def test_unacked_operations_are_resent_in_order_after_a_disconnect() -> None:
    """Operations in flight are older than queued ones, so they are sent first."""
    outbox = outbox_of("a", "b", "c")
    next_refs(outbox, room=2)
    outbox.record_ack("a", position(1), 0.0, is_stored=False)

    outbox.requeue_unanswered()

    assert next_refs(outbox) == ["b", "c"]


def test_deferred_operation_delays_only_later_ones_of_its_chat() -> None:
    """Order within a chat is kept; other chats do not wait."""
    outbox = outbox_of("a", "b")
    assert next_refs(outbox, room=1) == ["a"]
    outbox.put(operation("other", chat="c2"))

    outbox.postpone("a", until=5.0)

    assert next_refs(outbox, now=1.0) == ["other"]
    assert outbox.list_due_times() == [5.0]
    assert next_refs(outbox, now=5.0) == ["a", "b"]


def test_acked_operation_is_reported_once_and_kept_until_stored() -> None:
    """Promise P1: the device keeps an operation until it is in the warm tier."""
    outbox = outbox_of("a")
    next_refs(outbox)

    assert outbox.record_ack("a", position(7), 0.0, is_stored=False) is not None
    assert outbox.record_ack("a", position(7), 0.0, is_stored=False) is None
    outbox.record_stored("c1", 6, 0.0)
    assert len(outbox) == 1
    outbox.record_stored("c1", 7, 0.0)
    assert len(outbox) == 0


def test_new_epoch_resends_acked_operations_without_a_second_report() -> None:
    """The application already has the ack."""
    outbox = outbox_of("a", "b")
    next_refs(outbox)
    outbox.record_ack("a", position(1), 0.0, is_stored=False)
    outbox.requeue_unanswered()

    outbox.requeue_acked()

    assert next_refs(outbox) == ["a", "b"]
    assert outbox.record_ack("a", position(1), 0.0, is_stored=False) is None


def test_repeated_ref_is_a_no_op_or_a_conflict_if_its_content_differs() -> None:
    """A ref identifies one operation."""
    outbox = outbox_of("a")

    outbox.put(operation("a"))
    assert next_refs(outbox) == ["a"]

    with pytest.raises(Conflict):
        outbox.put(operation("a", kind="edit"))


def test_full_outbox_refuses_new_operations_and_drops_none() -> None:
    """Acked operations are never dropped to make room."""
    outbox = Outbox(1)
    outbox.put(operation("a"))
    next_refs(outbox)
    outbox.record_ack("a", position(1), 0.0, is_stored=False)

    with pytest.raises(Overloaded):
        outbox.put(operation("b"))
    assert len(outbox) == 1


def test_old_ack_without_stored_position_is_probed_with_the_newest_operation() -> None:
    """The response to a probe repeats a `stored` position that was missed offline."""
    outbox = outbox_of("a", "b")
    outbox.put(operation("c", kind="edit"))
    next_refs(outbox)
    for seq, ref in enumerate("abc", 1):
        outbox.record_ack(ref, position(seq), 0.0, is_stored=False)

    assert outbox.next_probe(PROBE_S - 0.1) is None
    probe = outbox.next_probe(PROBE_S)
    assert probe is not None
    assert probe.ref == "c"
    assert outbox.next_probe(PROBE_S) is None
    assert outbox.list_due_times() == [PROBE_S + PROBE_AGAIN_S]


def test_stored_ack_does_not_confirm_earlier_operations() -> None:
    """The ack may be of a new epoch, while earlier operations were lost with the old one."""
    outbox = outbox_of("a", "b")
    next_refs(outbox)
    outbox.record_ack("a", position(1), 0.0, is_stored=False)

    outbox.record_ack("b", position(8), 0.0, is_stored=True)

    assert [each.ref for each in outbox] == ["a"]


def test_hide_is_kept_until_its_own_retry_is_acked_as_stored() -> None:
    """A hide is not an entry of the chat, so the chat's stored position does not cover it."""
    hide = OutboxEntry(
        "h", "c1", {"type": "delete", "chat": "c1", "ref": "h", "seq": 3, "for": "me"}
    )
    outbox = outbox_of("a")
    outbox.put(hide)
    next_refs(outbox)
    outbox.record_ack("a", position(4), 0.0, is_stored=False)
    outbox.record_ack("h", (3, 0, ""), 0.0, is_stored=False)
    assert outbox.get_unstored(100) == {"c1": 4}

    outbox.record_stored("c1", 9, 1.0)

    assert [each.ref for each in outbox] == ["h"]
    assert outbox.get_unstored(100) == {}
    assert outbox.next_probe(PROBE_S) is hide
    assert outbox.next_probe(PROBE_S) is None
    outbox.record_ack("h", (3, 0, ""), PROBE_S, is_stored=True)
    assert (len(outbox), outbox.list_due_times()) == (0, [])


def test_operation_whose_probe_is_refused_waits_for_a_new_epoch() -> None:
    """The operation may belong to a past epoch; it is sent again in the next one."""
    outbox = outbox_of("a")
    next_refs(outbox)
    outbox.record_ack("a", position(1), 0.0, is_stored=False)
    assert outbox.next_probe(PROBE_S) is not None

    outbox.stop_probing("a")

    assert (len(outbox), outbox.list_due_times()) == (1, [])
    outbox.requeue_acked()
    assert next_refs(outbox) == ["a"]
