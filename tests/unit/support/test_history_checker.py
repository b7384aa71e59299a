"""The history checker accepts valid histories and reports each injected fault by its guarantee."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.history.checker import check, find_undelivered
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
    Notified,
    Requested,
    Responded,
    Restarted,
    Started,
    Stored,
    dump_history,
    load_history,
)
from tests.support.history.violation import report
from tests.unit.support.injected_faults import (
    FAULTS,
    change,
    change_entries,
    delivery_in,
    periods_of,
    remove_reaction,
    undo_deletion,
    undo_edit,
)
from tests.unit.support.valid_history import CHOICES, make_history

replace = msgspec.structs.replace


@functools.cache
def _make_valid_history() -> History:
    return make_history(5, random.Random(3).choices(CHOICES, k=300))


@pytest.fixture
def history() -> History:
    """A copy of a valid history with many events of every kind."""
    original = _make_valid_history()
    return History(dict(original.chats), original.devices, list(original.events))


def rules_of(history: History) -> set[str]:
    """Return the names of the guarantees that the history breaks."""
    return {violation.rule for violation in check(history)}


# valid histories


@given(seed=st.integers(0, 2**32), choices=st.lists(st.sampled_from(CHOICES), max_size=80))
def test_check_valid_history_passes(seed: int, choices: list[str]) -> None:
    """No history of a correct server is refused."""
    violations = check(make_history(seed, choices))

    assert not violations, report(violations)


def test_check_sample_history_has_every_action(history: History) -> None:
    """The history that the fault tests start from is valid and contains every action."""
    assert not check(history), report(check(history))
    assert {a.kind for a in history.all_of(Requested)} == set(get_args(Kind))
    assert any(len(periods) > 1 for periods in periods_of(history).of.values()), (
        "no user joined again"
    )


@pytest.mark.parametrize(
    ("kind", "is_valid"), [("remove", True), ("leave", True), ("update", False)]
)
def test_check_removal_between_a_leave_and_an_invite_needs_no_entry(
    kind: Kind, is_valid: bool
) -> None:
    """The user was not a member at that time; an answered update must be in the log."""
    entries = (
        LogEntry(1, 1_010, "m-1", "bob", "r1", "member", user="bob", role=""),
        LogEntry(2, 1_020, "m-2", "alice", "r2", "member", user="bob", role="member"),
    )
    history = History({"group": ["alice", "bob"]}, {}, [Stored("group", entries)])
    requests: list[tuple[str, str, Kind, str]] = [
        ("bob", "r1", "leave", ""),
        ("alice", "r2", "invite", "bob"),
        ("alice", "r3", kind, "bob"),
    ]
    for user, ref, request_kind, subject in requests:
        history.events.append(Requested(1.0, user, "group", ref, request_kind, subject=subject))
        history.events.append(Responded(2.0, user, "group", ref))

    assert ("P1" not in rules_of(history)) is is_valid


@pytest.mark.parametrize("is_lost", [True, False])
def test_check_tombstone_of_a_lost_entry_needs_a_loss(history: History, is_lost: bool) -> None:
    """An entry that nobody sent is valid only if it marks the position of a lost one."""
    stored = history.all_of(Stored)[0]
    seq, ts = len(stored.entries) + 1, stored.entries[-1].ts + 1
    tombstone = LogEntry(seq, ts, f"lost-{seq}", "-", f"lost-{seq}", "lost", deleted=True)
    change(history, stored, replace(stored, entries=(*stored.entries, tombstone)))
    if is_lost:
        history.events.append(Lost(0.0, "failover"))

    found = {v.rule for v in check(history) if f"/lost-{seq}" in v.text}

    assert found == (set() if is_lost else {"P2", "P4", "P7"})


def test_check_answered_removal_without_an_entry_is_lost() -> None:
    """The log contains no removal although it was answered and the user was a member."""
    entry = LogEntry(1, 1_010, "m-1", "alice", "r1", "text", "hello")
    events: list[Event] = [
        Stored("group", (entry,)),
        Requested(1.0, "alice", "group", "r1", "send", "hello"),
        Responded(2.0, "alice", "group", "r1", "", 1, 1_010, "m-1"),
        Requested(3.0, "alice", "group", "r2", "remove", subject="bob"),
        Responded(4.0, "alice", "group", "r2"),
    ]
    history = History({"group": ["alice", "bob"]}, {}, events)

    assert "P1" in rules_of(history)


@pytest.mark.parametrize(
    ("device", "is_reset", "is_valid"),
    [("bob-raw", True, True), ("bob-raw", False, False), ("bob-0", True, False)],
)
def test_check_raw_device_may_get_a_removal_again_after_a_reset(
    device: str, is_reset: bool, is_valid: bool
) -> None:
    """The snapshot omits the chat that the user left; only a device with a log can compare."""
    entries = (
        LogEntry(1, 1_010, "m-1", "alice", "r1", "text", "hello"),
        LogEntry(2, 1_020, "m-2", "bob", "r2", "member", user="bob", role=""),
    )
    events: list[Event] = [Stored("group", entries)]
    events += [Delivered(1.0, "bob", device, "group", entry) for entry in entries]
    if is_reset:
        events.append(Restarted(2.0, "bob", device, True))
    events += [Delivered(3.0, "bob", device, "group", entry) for entry in entries]
    history = History({"group": ["alice", "bob"]}, {"bob": [device]}, events)

    is_repeat_reported = any("duplicate" in violation.text for violation in check(history))
    assert is_repeat_reported is not is_valid


def test_history_dumped_and_loaded_is_equal(history: History) -> None:
    """A history saved after a failure can be checked again."""
    assert load_history(dump_history(history)) == history


def test_find_undelivered_entries_reports_a_missing_delivery(history: History) -> None:
    """Tests use it to wait until every entry is delivered."""
    assert not find_undelivered(history)

    history.events.remove(delivery_in(history))

    assert [violation.rule for violation in find_undelivered(history)] == ["P4"]


def test_check_device_that_started_over_may_read_instead_of_receive(history: History) -> None:
    """A device that was disconnected for too long reads its chats instead of events."""
    delivery = delivery_in(history)
    change(history, delivery, Restarted(delivery.t, delivery.user, delivery.device, False),
           replace(delivery, is_read=True))  # fmt: skip

    assert not check(history), report(check(history))


@pytest.mark.parametrize(("top", "is_valid"), [(3, True), (2, False)])
def test_check_entries_in_the_snapshot_of_a_reset_need_no_delivery(
    top: int, is_valid: bool
) -> None:
    """After `reset`, a device must receive the entries above the snapshot."""
    history = make_history(1, ["send"] * 30)
    log = next(stored for stored in history.all_of(Stored) if stored.chat == "duo").entries
    inbox = [d for d in history.all_of(Delivered) if (d.device, d.chat) == ("bob-1", "duo")]
    for delivery in inbox[:3]:
        names = (delivery.user, delivery.device, delivery.chat)
        change(history, delivery, Notified(delivery.t, *names, "-", delivery.event, "e1"))
    end = history.events.index(next(each for each in history.events if isinstance(each, Stored)))
    history.events.insert(end, Started(90.0, "bob", "bob-1", "e2", 0, {"duo": top}))

    violations = find_undelivered(history)

    assert len(log) > 3
    assert (not violations) is is_valid, report(violations)


@pytest.mark.parametrize(("code", "rules"), [("unavailable", set()), ("forbidden", {"P2"})])
def test_check_refused_message_may_exist_if_its_outcome_is_unknown(
    history: History, code: str, rules: set[str]
) -> None:
    """After `unavailable` the message may exist; after a final refusal it must not."""
    dups = {ack.ref for ack in history.acks() if ack.dup}
    ack = next(a for a in history.acks() if a.seq and a.chat == "duo" and a.ref not in dups)
    change(history, ack, replace(ack, code=code, seq=0, ts=0, mid=""))

    assert rules_of(history) == rules


def test_report_counts_rules_and_bounds_text(history: History) -> None:
    """The report has a count per rule and shows the first violations."""
    change_entries(history, Stored, lambda _: ())

    text = report(check(history), shown_max=3)

    assert "P1 x " in text.splitlines()[0]
    assert "… and " in text
    assert len(text.splitlines()) == 5


# injected faults


@pytest.mark.parametrize(("rule", "inject"), FAULTS, ids=[inject.__name__ for _, inject in FAULTS])
def test_check_injected_fault_is_reported(
    history: History, rule: str, inject: Callable[[History], None]
) -> None:
    """Each fault is reported with the guarantee that it breaks."""
    inject(history)

    assert rule in rules_of(history)


@pytest.mark.parametrize("where", [Stored, Final, Kept])
@pytest.mark.parametrize("transform", [undo_edit, remove_reaction, undo_deletion])
def test_check_message_without_its_change_is_reported(
    history: History,
    where: type[Stored] | type[Final] | type[Kept],
    transform: Callable[[tuple[LogEntry, ...]], tuple[LogEntry, ...]],
) -> None:
    """An unapplied change is found in DynamoDB, in histories and on devices."""
    change_entries(history, where, transform)

    assert rules_of(history) == {"P10"}


@pytest.mark.parametrize("kind", [Stored, Final, Line, Responded])
def test_check_history_without_its_end_is_void(history: History, kind: type[Event]) -> None:
    """An incomplete history proves nothing."""
    missing = history.all_of(kind)[: 1 if kind is Line else None]
    history.events = [event for event in history.events if event not in missing]

    assert "VOID" in rules_of(history)
