"""After a data loss in Redis the checker permits the documented effects, and no others."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.support.history.checker import check
from tests.support.history.events import (
    Delivered,
    Event,
    Final,
    History,
    Kept,
    Kind,
    Line,
    LogEntry,
    Lost,
    Named,
    Requested,
    Responded,
    Restarted,
    Stored,
    Watermark,
    Withdrawn,
)
from tests.support.history.violation import report

replace = msgspec.structs.replace
DEVICES = {"alice": ["alice-0"], "bob": ["bob-0"]}


def entry(seq: int, ref: str, mid: str, body: str = "", **more: object) -> LogEntry:
    """Return a message from alice."""
    fields = {"seq": seq, "ts": 1_000 + seq, "mid": mid, "sender": "alice", "ref": ref}
    return msgspec.convert({**fields, "kind": "text", "body": body or ref, **more}, LogEntry)


KEPT, NEW = entry(1, "kept", "m1"), entry(2, "new", "m3")
LOST = entry(2, "lost", "m2")  # acked at seq 2, lost, and sent again: now at seq 3
MOVED = entry(3, "lost", "m4")
LOG = (KEPT, NEW, MOVED)


def delivered(t: float, device: str, shown: LogEntry) -> Delivered:
    """Return the delivery of an entry to a device."""
    return Delivered(t, device.partition("-")[0], device, "duo", shown)


def answered(t: float, shown: LogEntry) -> Responded:
    """Return an ack to alice's device."""
    place = (shown.seq, shown.ts, shown.mid, "alice-0")
    return Responded(t, "alice", "duo", shown.ref, "", *place)


@pytest.fixture
def history() -> History:
    """A valid history: Redis loses one entry, which is sent again after a new one."""
    events: list[Event] = [
        *(Requested(0.1, "alice", "duo", ref, "send", ref) for ref in ("kept", "lost", "new")),
        answered(1.0, KEPT),
        answered(1.1, LOST),
        delivered(1.2, "alice-0", KEPT),
        delivered(1.2, "alice-0", LOST),
        delivered(1.2, "bob-0", KEPT),
        delivered(1.2, "bob-0", LOST),
        Watermark(1.3, "alice", "alice-0", "duo", 1),
        Lost(2.0, "cut log"),
        Restarted(3.0, "alice", "alice-0", True),
        Restarted(3.0, "bob", "bob-0", True),
        Withdrawn(3.1, "alice", "alice-0", "duo", (2,), 1),
        Withdrawn(3.1, "bob", "bob-0", "duo", (2,), 1),
        answered(3.2, NEW),
        *(
            delivered(3.3, device, shown)
            for device in ("alice-0", "bob-0")
            for shown in (NEW, MOVED)
        ),
        Stored("duo", LOG),
    ]
    for user, (device,) in DEVICES.items():
        events += [
            Final(user, "duo", LOG),
            Kept(user, device, "duo", LOG),
            Line(user, device, "duo", 3, 0),
        ]
    return History({"duo": ["alice", "bob"]}, DEVICES, events)


def index_of(history: History, kind: type, **wanted: object) -> int:
    """Return the index of the first event of a kind with these fields."""
    return next(
        at
        for at, event in enumerate(history.events)
        if isinstance(event, kind) and all(getattr(event, k) == v for k, v in wanted.items())
    )


def test_lost_entry_that_is_sent_and_delivered_again_passes(history: History) -> None:
    """Losses that the guarantees permit are not violations."""
    assert not check(history), report(check(history))


def test_reset_of_an_earlier_loss_may_arrive_after_the_next_loss(history: History) -> None:
    """The device still receives entries that the second loss removed."""
    history.events.insert(0, Lost(1.15, "an earlier loss"))
    at = index_of(history, Restarted, device="bob-0")
    history.events.insert(at, Restarted(2.1, "bob", "bob-0", True))
    history.events.insert(at + 1, delivered(2.2, "bob-0", LOST))

    assert not check(history), report(check(history))


@pytest.mark.parametrize("is_shown", [True, False])
def test_lost_message_that_a_user_deleted_for_themselves_may_be_shown(
    history: History, is_shown: bool
) -> None:
    """Another message has its position now, and may be hidden instead."""
    asked = Requested(1.3, "bob", "duo", "hide", "hide", target=2)
    history.events[0:0] = [asked, Responded(1.4, "bob", "duo", "hide", "")]
    if not is_shown:
        hidden = replace(NEW, body="", deleted=True)
        at = index_of(history, Final, user="bob")
        history.events[at] = Final("bob", "duo", (KEPT, hidden, MOVED))

    assert not check(history), report(check(history))


def test_tombstone_of_a_lost_message_needs_a_loss(history: History) -> None:
    """DynamoDB has a tombstone in the position of a message that was not stored."""
    gap = LogEntry(4, 1_004, "lost-4", "-", "lost-4", "lost", deleted=True)
    log = (*LOG, gap)
    at = index_of(history, Stored)
    history.events[at] = Stored("duo", log)
    for user in DEVICES:
        at = index_of(history, Final, user=user)
        history.events[at] = Final(user, "duo", log)
        at = index_of(history, Line, user=user)
        history.events[at] = replace(history.events[at], top=4)

    assert not check(history), report(check(history))
    del history.events[index_of(history, Lost)]
    assert "P2: lost -/lost-4 at duo#4 was never requested" in report(check(history))


def test_lost_change_of_a_lost_message_may_be_missing(history: History) -> None:
    """The change of a lost message may be refused when it is sent again."""
    asked = Requested(1.1, "alice", "duo", "edit", "edit", "better", target=2)
    change = Responded(1.2, "alice", "duo", "edit", "", 3, 1_003, "m9", "alice-0")
    history.events[0:0] = [asked, change]

    assert not check(history), report(check(history))


def never_send_again(history: History) -> None:
    """The lost entry is never sent again."""
    log = LOG[:2]
    for at, event in enumerate(history.events):
        match event:
            case Stored() | Final() | Kept():
                history.events[at] = replace(event, entries=log)
            case Line():
                history.events[at] = replace(event, top=2)
    history.events = [
        s for s in history.events if not (isinstance(s, Delivered) and s.entry == MOVED)
    ]


def refuse_again(history: History) -> None:
    """The lost entry is refused when a user who is still a member sends it again."""
    never_send_again(history)
    history.events.append(Responded(3.4, "alice", "duo", "lost", "not_found", device="alice-0"))


def test_lost_message_of_a_user_who_left_may_be_refused(history: History) -> None:
    """A former member cannot send; a refusal to a member is a violation."""
    refuse_again(history)
    left = replace(entry(3, "bye", "m8"), kind="member", user="alice", role="")
    at = index_of(history, Stored)
    history.events[at] = replace(history.events[at], entries=(*LOG[:2], left))

    assert "P1" not in {violation.rule for violation in check(history)}


@pytest.mark.parametrize("code", ["conflict", ""])
@pytest.mark.parametrize("deleted", [True, False])
def test_lost_deletion_of_a_message_that_was_deleted_may_be_missing(
    history: History, deleted: bool, code: str
) -> None:
    """The deletion that is sent again has no effect; the SDK reports only its first ack."""
    asked = Requested(1.1, "alice", "duo", "gone", "delete", target=1)
    history.events[0:0] = [
        asked,
        Responded(1.2, "alice", "duo", "gone", "", 3, 1_003, "m9", "alice-0"),
    ]
    if code:
        history.events.append(Responded(3.4, "alice", "duo", "gone", code, device="alice-0"))
    at = index_of(history, Stored)
    first = replace(LOG[0], deleted=deleted, body="" if deleted else LOG[0].body)
    history.events[at] = replace(history.events[at], entries=(first, *LOG[1:]))

    found = "P1" in {violation.rule for violation in check(history)}

    assert found is not deleted


@pytest.mark.parametrize("deleted", [True, False])
def test_lost_change_of_a_message_that_was_deleted_may_be_refused(
    history: History, deleted: bool
) -> None:
    """A change that is sent again applies to the current message, which is deleted."""
    asked = Requested(1.1, "alice", "duo", "edit", "edit", "better", target=1)
    change = Responded(1.2, "alice", "duo", "edit", "", 3, 1_003, "m9", "alice-0")
    history.events[0:0] = [asked, change]
    history.events.append(Responded(3.4, "alice", "duo", "edit", "conflict", device="alice-0"))
    at = index_of(history, Stored)
    first = replace(LOG[0], deleted=deleted, body="" if deleted else LOG[0].body)
    history.events[at] = replace(history.events[at], entries=(first, *LOG[1:]))

    found = "P1" in {violation.rule for violation in check(history)}

    assert found is not deleted


def test_entry_withdrawn_without_a_loss_may_be_delivered_again(history: History) -> None:
    """A user removed in a new epoch reads the chat again after a return."""
    redelivered = [
        event for event in history.events if isinstance(event, Delivered) and event.t > 3.0
    ]
    history.events = [event for event in history.events if not isinstance(event, Lost)]
    at = history.events.index(redelivered[-1]) + 1
    new_epoch = Restarted(3.4, "bob", "bob-0", True)
    history.events[at:at] = [new_epoch, Withdrawn(3.5, "bob", "bob-0", "duo", (3,), 2)]
    history.events.insert(at + 2, delivered(3.6, "bob-0", MOVED))

    found = [violation for violation in check(history) if "duplicate" in violation.text]

    assert found == []


def name_lost_message(history: History, kind: Kind, ref: str) -> None:
    """Bob requests a change of the lost message, which had the seq of another one."""
    history.events[0:0] = [
        Requested(1.3, "bob", "duo", ref, kind, "👍", target=2),
        Named(1.3, "bob", "duo", ref, "lost"),
    ]


def change_another_message(history: History) -> None:
    """A reaction to the lost message is one to the message that has its seq now."""
    name_lost_message(history, "react", "react")
    change = replace(entry(4, "react", "m5", "👍"), sender="bob", kind="reaction", target=2)
    at = index_of(history, Stored)
    history.events[at] = Stored("duo", (*LOG, change))


def hide_another_message(history: History) -> None:
    """The message that has the seq of the lost one now is hidden."""
    name_lost_message(history, "hide", "hide")
    at = index_of(history, Final, user="bob")
    hidden = replace(NEW, body="", deleted=True)
    history.events[at] = Final("bob", "duo", (KEPT, hidden, MOVED))


def lose_stored_entry(history: History) -> None:
    """A device got `stored` for a seq that another entry has now."""
    mark = index_of(history, Watermark)
    history.events[mark] = Watermark(1.3, "alice", "alice-0", "duo", 2)


def ack_lost_seq_after_the_reset(history: History) -> None:
    """A device gets an ack for a lost seq after its reset."""
    history.events[index_of(history, Responded, ref="lost")] = answered(3.4, LOST)


def deliver_lost_entry_after_the_reset(history: History) -> None:
    """A device receives a lost entry after its reset."""
    history.events.insert(index_of(history, Stored), delivered(3.4, "bob-0", LOST))


def deliver_twice_without_withdrawal(history: History) -> None:
    """A device receives an entry again that it never withdrew."""
    history.events.insert(index_of(history, Stored), delivered(3.4, "bob-0", KEPT))


def withdraw_without_a_data_loss(history: History) -> None:
    """The same history, but Redis lost nothing."""
    history.events.pop(index_of(history, Lost))


FAULTS: list[tuple[str, Callable[[History], None]]] = [
    ("P10", change_another_message),
    ("P10", hide_another_message),
    ("P1", never_send_again),
    ("P1", refuse_again),
    ("P1", lose_stored_entry),
    ("P1", ack_lost_seq_after_the_reset),
    ("P3", deliver_lost_entry_after_the_reset),
    ("P4", deliver_twice_without_withdrawal),
    ("E", withdraw_without_a_data_loss),
    ("P1", withdraw_without_a_data_loss),
]


@pytest.mark.parametrize(("rule", "inject"), FAULTS, ids=[inject.__name__ for _, inject in FAULTS])
def test_loss_does_not_permit_injected_fault(
    history: History, rule: str, inject: Callable[[History], None]
) -> None:
    """Losses that the guarantees do not permit are reported."""
    inject(history)

    assert rule in {violation.rule for violation in check(history)}
