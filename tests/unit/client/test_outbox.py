"""The outbox: in order, under one ref, until it is stored."""

from __future__ import annotations

import pytest

from chatserver.client.outbox import PROBE_AGAIN_S, PROBE_S, Outbox, OutboxEntry
from chatserver.errors import Conflict, Overloaded


def deed(ref: str, chat: str = "c1", kind: str = "send") -> OutboxEntry:
    return OutboxEntry(ref, chat, {"type": kind, "chat": chat, "ref": ref, "body": ref})


def box_of(*refs: str) -> Outbox:
    box = Outbox(100)
    for ref in refs:
        box.put(deed(ref))
    return box


def offered(box: Outbox, now: float = 0.0, room: int = 64) -> list[str]:
    return [one.ref for one in box.next_offers(now, room)]


def place(seq: int) -> tuple[int, int, str]:
    return seq, seq * 1000, f"m{seq}"


def test_offers_keep_the_order_and_the_bound_of_the_server() -> None:
    """No more are in flight than the server allows."""
    box = box_of("a", "b", "c")

    assert offered(box, room=2) == ["a", "b"]
    assert offered(box, room=2) == []
    box.acked("a", place(1), 0.0, is_stored=False)
    assert offered(box, room=2) == ["c"]


def test_unanswered_are_offered_again_in_order_after_a_break() -> None:
    """Messages in flight were written before those that wait, so they are sent first."""
    box = box_of("a", "b", "c")
    offered(box, room=2)
    box.acked("a", place(1), 0.0, is_stored=False)

    box.disconnected()

    assert offered(box) == ["b", "c"]


def test_put_off_deed_holds_back_what_follows_in_its_chat_alone() -> None:
    """Order within a chat is kept as far as it can be; other chats do not wait."""
    box = box_of("a", "b")
    assert offered(box, room=1) == ["a"]
    box.put(deed("other", chat="c2"))

    box.put_off("a", until=5.0)

    assert offered(box, now=1.0) == ["other"]
    assert box.times() == [5.0]
    assert offered(box, now=5.0) == ["a", "b"]


def test_acked_deed_is_told_once_and_stays_until_it_is_stored() -> None:
    """Promise P1: until the warm tier has it, this device does."""
    box = box_of("a")
    offered(box)

    assert box.acked("a", place(7), 0.0, is_stored=False) is not None
    assert box.acked("a", place(7), 0.0, is_stored=False) is None
    box.stored("c1", 6, 0.0)
    assert len(box) == 1
    box.stored("c1", 7, 0.0)
    assert len(box) == 0


def test_new_epoch_offers_acked_ones_again_and_tells_nobody_twice() -> None:
    """The application already knows that it is done; the new epoch must not change that."""
    box = box_of("a", "b")
    offered(box)
    box.acked("a", place(1), 0.0, is_stored=False)
    box.disconnected()

    box.new_epoch()

    assert offered(box) == ["a", "b"]
    assert box.acked("a", place(1), 0.0, is_stored=False) is None


def test_same_ref_again_changes_nothing_and_another_text_is_a_conflict() -> None:
    """The ref names one deed."""
    box = box_of("a")

    box.put(deed("a"))
    assert offered(box) == ["a"]

    with pytest.raises(Conflict):
        box.put(deed("a", kind="edit"))


def test_full_outbox_refuses_and_drops_nothing() -> None:
    """Acked operations are never dropped to make room."""
    box = Outbox(1)
    box.put(deed("a"))
    offered(box)
    box.acked("a", place(1), 0.0, is_stored=False)

    with pytest.raises(Overloaded):
        box.put(deed("b"))
    assert len(box) == 1


def test_old_ack_without_a_watermark_is_asked_about_with_the_newest_deed() -> None:
    """A watermark missed while offline is repeated after the answer."""
    box = box_of("a", "b")
    box.put(deed("c", kind="edit"))
    offered(box)
    for seq, ref in enumerate("abc", 1):
        box.acked(ref, place(seq), 0.0, is_stored=False)

    assert box.next_probe(PROBE_S - 0.1) is None
    probe = box.next_probe(PROBE_S)
    assert probe is not None
    assert probe.ref == "c"
    assert box.next_probe(PROBE_S) is None
    assert box.times() == [PROBE_S + PROBE_AGAIN_S]


def test_ack_of_a_stored_deed_says_nothing_of_those_before_it() -> None:
    """It may be of a new epoch, and what was acked before be lost in the old one."""
    box = box_of("a", "b")
    offered(box)
    box.acked("a", place(1), 0.0, is_stored=False)

    box.acked("b", place(8), 0.0, is_stored=True)

    assert [left.ref for left in box] == ["a"]


def test_hide_is_kept_until_its_own_repeat_is_acked_as_stored() -> None:
    """A hide is not an entry of the chat, so the chat's stored position does not cover it."""
    hide = OutboxEntry(
        "h", "c1", {"type": "delete", "chat": "c1", "ref": "h", "seq": 3, "for": "me"}
    )
    box = box_of("a")
    box.put(hide)
    offered(box)
    box.acked("a", place(4), 0.0, is_stored=False)
    box.acked("h", (3, 0, ""), 0.0, is_stored=False)
    assert box.unstored(100) == {"c1": 4}

    box.stored("c1", 9, 1.0)

    assert [left.ref for left in box] == ["h"]
    assert box.unstored(100) == {}
    assert box.next_probe(PROBE_S) is hide
    assert box.next_probe(PROBE_S) is None
    box.acked("h", (3, 0, ""), PROBE_S, is_stored=True)
    assert (len(box), box.times()) == (0, [])


def test_deed_that_is_refused_when_it_is_asked_about_waits_for_a_new_epoch() -> None:
    """It may be of an epoch that is over: then it is offered again."""
    box = box_of("a")
    offered(box)
    box.acked("a", place(1), 0.0, is_stored=False)
    assert box.next_probe(PROBE_S) is not None

    box.ask_no_more("a")

    assert (len(box), box.times()) == (1, [])
    box.new_epoch()
    assert offered(box) == ["a"]
