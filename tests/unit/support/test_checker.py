"""The checker accepts valid histories and reports each injected fault by its rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checker import check, report
from tests.support.observations import (
    Acked,
    AnyObservation,
    FinalHistory,
    Listed,
    Marked,
    PageRead,
    Pushed,
    Refused,
    Row,
    Run,
    Sent,
    Started,
    WarmRows,
    dump_run,
    load_run,
)
from tests.unit.support.valid_run import CHOICES, make_run

replace = msgspec.structs.replace
O = TypeVar("O", bound=AnyObservation)  # noqa: E741


@pytest.fixture
def run() -> Run:
    """A valid run with many observations of every kind."""
    choices = random.Random(7).choices(CHOICES, k=400)
    return make_run(11, [*choices, "ack", "ack", "page"])


def rules_of(run: Run) -> set[str]:
    """Return the names of the rules that the run breaks."""
    return {violation.rule for violation in check(run)}


def all_of(run: Run, kind: type[O]) -> list[O]:
    """Return the observations of one kind."""
    return [seen for seen in run.seen if isinstance(seen, kind)]


def change(run: Run, old: AnyObservation, *new: AnyObservation) -> None:
    """Replace `old` with `new`."""
    at = next(i for i, seen in enumerate(run.seen) if seen is old)
    run.seen[at : at + 1] = new


def change_rows(run: Run, chat: str, alter: Callable[[tuple[Row, ...]], tuple[Row, ...]]) -> None:
    """Change the rows of a chat in the final histories and in the warm tier."""
    for seen in list(run.seen):
        if isinstance(seen, FinalHistory | WarmRows) and seen.chat == chat:
            change(run, seen, replace(seen, t=100.0, rows=alter(seen.rows)))


def without(run: Run, *removed: AnyObservation) -> None:
    """Remove observations from the run."""
    names = {id(seen) for seen in removed}
    run.seen = [seen for seen in run.seen if id(seen) not in names]


# valid histories


@given(seed=st.integers(0, 2**32), choices=st.lists(st.sampled_from(CHOICES), max_size=80))
def test_check_valid_run_passes(seed: int, choices: list[str]) -> None:
    """No history of a correct server is refused."""
    violations = check(make_run(seed, choices))

    assert not violations, report(violations)


def test_check_sample_run_has_every_kind_of_observation(run: Run) -> None:
    """The run that the fault tests start from is valid and contains every kind."""
    assert not check(run), report(check(run))
    assert {type(seen) for seen in run.seen} == set(AnyObservation.__args__)
    assert any(ack.dup for ack in all_of(run, Acked))


def test_run_dumped_and_loaded_is_equal(run: Run) -> None:
    """A run saved after a failure can be checked again."""
    loaded = load_run(dump_run(run))

    assert loaded == run


def test_check_reset_with_snapshot_passes(run: Run) -> None:
    """After `reset`, entries that the snapshot covers need not be delivered."""
    device = ("bob", "bob-1")
    steps = [s for s in all_of(run, Pushed) if (s.user, s.device) == device]
    lost, kept = steps[-10:-5], steps[-5:]
    tops = {
        chat: max(s.row.seq for s in steps[:-5] if s.row and s.chat == chat)
        for chat in ("duo", "trio")
    }
    change(run, lost[0], Started(lost[0].t, *device, "e2", 0, tops))
    without(run, *lost[1:])
    for seq, step in enumerate(kept, start=1):
        change(run, step, replace(step, epoch="e2", seq=seq))

    assert not check(run), report(check(run))


# injected faults


def test_check_no_ack_is_void(run: Run) -> None:
    """A run without an ack proves nothing."""
    without(run, *all_of(run, Acked))

    assert rules_of(run) == {"VOID"}


def test_check_history_not_read_is_void(run: Run) -> None:
    """A run without the final reads proves nothing."""
    without(run, all_of(run, FinalHistory)[0], all_of(run, WarmRows)[0])

    assert [violation.rule for violation in check(run)] == ["VOID", "VOID"]


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_check_acked_message_dropped_is_lost(run: Run, where: str) -> None:
    """An acked message that is missing everywhere at the end is lost."""
    acked = sorted({ack.seq for ack in all_of(run, Acked) if ack.chat == "trio"})
    dropped = {"first": acked[0], "middle": acked[len(acked) // 2], "last": acked[-1]}[where]
    change_rows(run, "trio", lambda rows: tuple(row for row in rows if row.seq != dropped))

    violations = check(run)

    assert {violation.rule for violation in violations} == {"I1"}
    assert len(violations) == 4  # three members and the warm tier
    assert f"trio#{dropped}" in violations[0].text


def test_check_message_dropped_at_one_member_is_lost(run: Run) -> None:
    """A message missing in one member's history is lost."""
    final = next(f for f in all_of(run, FinalHistory) if f.user == "carol")
    change(run, final, replace(final, rows=final.rows[:-1]))

    violations = check(run)

    assert {violation.rule for violation in violations} == {"I1"}
    assert "carol" in violations[0].text
    assert "postfix" in violations[0].text


def test_check_message_missing_in_warm_tier_is_lost(run: Run) -> None:
    """A message that the persist worker dropped is lost, although Redis still has it."""
    warm = next(w for w in all_of(run, WarmRows) if w.chat == "duo")
    change(run, warm, replace(warm, rows=warm.rows[:4] + warm.rows[5:]))

    violations = check(run)

    assert [violation.rule for violation in violations] == ["I1"]
    assert "the warm tier" in violations[0].text


def test_check_message_nobody_sent_is_phantom(run: Run) -> None:
    """A message that nobody sent is a phantom."""
    top = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[-1]
    phantom = replace(top, seq=top.seq + 1, ts=top.ts + 1, mid="phantom", ref="phantom")
    change_rows(run, "duo", lambda rows: (*rows, phantom))
    relist(run, "duo", top.seq + 1)
    push_to_all(run, phantom)

    assert rules_of(run) == {"I2"}


def relist(run: Run, chat: str, top: int) -> None:
    """Update the chat lists for a new head."""
    for seen in all_of(run, Listed):
        if seen.chat == chat:
            change(run, seen, replace(seen, top=top, unread=top - seen.read))


def push_to_all(run: Run, row: Row) -> None:
    """Push a message to all devices, after everything else."""
    ends: dict[tuple[str, str], Started | Pushed] = {}
    for seen in run.seen:
        if isinstance(seen, Started | Pushed):
            ends[seen.user, seen.device] = seen
    for (user, device), end in ends.items():
        if user in run.members[row.chat]:
            run.seen.append(Pushed(99.0, user, device, end.epoch, end.seq + 1, row.chat, row))


def test_check_body_rewritten_is_phantom(run: Run) -> None:
    """A changed body is a message that nobody sent."""
    push = all_of(run, Pushed)[20]
    assert push.row is not None
    change(run, push, replace(push, row=replace(push.row, body="something else")))

    violations = check(run)

    assert [violation.rule for violation in violations] == ["I2"]
    assert "has a body that was never sent" in violations[0].text


def test_check_message_committed_twice_is_duplicate(run: Run) -> None:
    """A resend with a second seq is a duplicate."""
    top = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[-1]
    twin = replace(top, seq=top.seq + 1, ts=top.ts + 1, mid="twin")
    change_rows(run, "duo", lambda rows: (*rows, twin))
    relist(run, "duo", top.seq + 1)
    push_to_all(run, twin)

    assert rules_of(run) == {"I3"}


def test_check_row_listed_twice_is_duplicate(run: Run) -> None:
    """A history that contains a message twice has a duplicate."""
    final = all_of(run, FinalHistory)[0]
    change(run, final, replace(final, rows=(*final.rows[:3], *final.rows[2:])))

    assert rules_of(run) == {"I3"}


def test_check_two_messages_with_swapped_seqs_are_found(run: Run) -> None:
    """The history contradicts earlier observations."""
    final = all_of(run, FinalHistory)[0]
    a, b = final.rows[4:6]
    swapped = (replace(b, seq=a.seq, ts=a.ts), replace(a, seq=b.seq, ts=b.ts))
    change(run, final, replace(final, rows=final.rows[:4] + swapped + final.rows[6:]))

    assert rules_of(run) == {"I3", "I5"}  # each message is also at two seqs


def test_check_seq_assigned_twice_is_found(run: Run) -> None:
    """A Redis that lost data assigns a seq to another message."""
    top = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[-1]
    sent = Sent(50.0, "bob", "bob-1", 999, "duo", "later", "later")
    ack = Acked(
        51.0, "bob", "bob-1", 999, "duo", "later", "later", top.seq, top.ts + 9, "mX", False
    )
    run.seen += [sent, ack]

    assert rules_of(run) == {"I5", "I1"}  # the seq has another message, so this one is lost


def test_check_seq_without_a_message_is_a_gap(run: Run) -> None:
    """A seq that no message has is a gap."""
    top = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[-1]
    names = ("bob", "bob-1", 999, "duo", "later", "later")
    row = Row("duo", top.seq + 2, top.ts + 9, "mX", "bob", "later", "later")
    run.seen += [Sent(50.0, *names), Acked(51.0, *names, row.seq, row.ts, row.mid, False)]
    change_rows(run, "duo", lambda rows: (*rows, row))
    relist(run, "duo", row.seq)
    push_to_all(run, row)

    violations = check(run)

    assert {violation.rule for violation in violations} == {"I4"}
    assert f"duo#{top.seq + 1}" in violations[0].text


def test_check_event_dropped_at_one_device_is_found(run: Run) -> None:
    """A missing event is reported as a gap in the inbox and as an undelivered message."""
    push = [p for p in all_of(run, Pushed) if p.device == "bob-1"][10]
    without(run, push)

    assert rules_of(run) == {"P4", "I18"}


def test_check_last_event_dropped_at_one_device_is_undelivered(run: Run) -> None:
    """A lost last event makes no gap, but is an undelivered message."""
    push = [p for p in all_of(run, Pushed) if p.device == "bob-1"][-1]
    without(run, push)

    violations = check(run)

    assert [violation.rule for violation in violations] == ["I18"]
    assert "bob/bob-1" in violations[0].text


def test_check_event_repeated_at_one_device_is_found(run: Run) -> None:
    """A device must not receive an event twice."""
    push = [p for p in all_of(run, Pushed) if p.device == "bob-1"][10]
    change(run, push, push, replace(push, t=push.t + 0.0001))

    assert rules_of(run) == {"P4", "I6"}


def test_check_events_reordered_at_one_device_are_out_of_order(run: Run) -> None:
    """The chat seqs of events must increase at each device."""
    pushes = [p for p in all_of(run, Pushed) if p.device == "bob-1"]
    a, b = next((a, b) for a, b in pairwise(pushes) if a.chat == b.chat)
    change(run, a, replace(a, row=b.row))
    change(run, b, replace(b, row=a.row))

    violations = check(run)

    assert [violation.rule for violation in violations] == ["I6"]
    assert "bob/bob-1" in violations[0].text


def test_check_pipelined_sends_reordered_break_session_order(run: Run) -> None:
    """Of two sends on one connection, the earlier one must have the lower seq."""
    top = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[-1]
    rows = [
        Row("duo", top.seq + 1, top.ts + 1, "mB", "bob", "second", "second"),
        Row("duo", top.seq + 2, top.ts + 2, "mA", "bob", "first", "first"),
    ]
    for ref in ("first", "second"):
        run.seen.append(Sent(50.0, "bob", "bob-1", 999, "duo", ref, ref))
    for row in rows:
        names = ("bob", "bob-1", 999, "duo", row.ref, row.ref)
        run.seen.append(Acked(51.0, *names, row.seq, row.ts, row.mid, False))
        push_to_all(run, row)
    change_rows(run, "duo", lambda old: (*old, *rows))
    relist(run, "duo", top.seq + 2)

    assert rules_of(run) == {"I7"}


def test_check_message_below_one_acked_earlier_breaks_real_time(run: Run) -> None:
    """A message acked before another one is sent has the lower seq, for any senders."""
    top = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[-1]
    rows = [
        Row("duo", top.seq + 2, top.ts + 2, "mA", "alice", "early", "early"),
        Row("duo", top.seq + 1, top.ts + 1, "mB", "bob", "late", "late"),
    ]
    for t, row in enumerate(rows, start=50):
        names = (row.sender, f"{row.sender}-1", 900 + t, "duo", row.ref, row.ref)
        run.seen.append(Sent(t + 0.1, *names))
        run.seen.append(Acked(t + 0.2, *names, row.seq, row.ts, row.mid, False))
    for row in reversed(rows):
        push_to_all(run, row)
    change_rows(run, "duo", lambda old: (*old, *reversed(rows)))
    relist(run, "duo", top.seq + 2)

    assert rules_of(run) == {"I8"}


@pytest.mark.parametrize("fault", ["gap", "stale", "false_end"])
def test_check_bad_page_breaks_reads(run: Run, fault: str) -> None:
    """A page with a gap, without an acked message, or with a wrong end is found."""
    page = next(
        p for p in reversed(all_of(run, PageRead)) if len(p.rows) >= 3 and p.rows[0].seq > 1
    )
    match fault:
        case "gap":
            change(run, page, replace(page, rows=page.rows[:1] + page.rows[2:]))
        case "stale":
            newest = replace(page, before=None, after=None, rows=page.rows[:1], more=True)
            change(run, page, replace(newest, asked=90.0, t=91.0))
        case _:
            change(run, page, replace(page, before=page.rows[-1].seq + 1, after=None, more=False))

    assert rules_of(run) == {"I9"}


def test_check_refused_message_that_exists_is_found(run: Run) -> None:
    """A message that was finally refused must not appear later."""
    ack = next(a for a in all_of(run, Acked) if not a.dup and len(attempts(run, a)) == 1)
    change(run, ack, Refused(ack.t, ack.user, ack.conn, ack.chat, ack.ref, "forbidden"))

    violations = check(run)

    assert [violation.rule for violation in violations] == ["I11"]


def test_check_unavailable_message_that_exists_passes(run: Run) -> None:
    """After `unavailable` the message may exist or not."""
    ack = next(a for a in all_of(run, Acked) if not a.dup and len(attempts(run, a)) == 1)
    change(run, ack, Refused(ack.t, ack.user, ack.conn, ack.chat, ack.ref, "unavailable"))

    assert not check(run), report(check(run))


def attempts(run: Run, ack: Acked) -> list[Sent]:
    """Return the sends of an acked message."""
    return [s for s in all_of(run, Sent) if (s.user, s.ref) == (ack.user, ack.ref)]


def test_check_push_to_non_member_is_leak(run: Run) -> None:
    """A message that reaches a non-member is a leak."""
    row = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[0]
    end = [s for s in run.seen if isinstance(s, Pushed | Started) and s.device == "carol-1"][-1]
    run.seen.append(Pushed(60.0, "carol", "carol-1", "e1", end.seq + 1, "duo", row))

    violations = check(run)

    assert [violation.rule for violation in violations] == ["I12"]
    assert "carol" in violations[0].text


def test_check_message_of_non_member_is_leak(run: Run) -> None:
    """A message from a non-member in a history is a violation too."""
    run.members["trio"] = {"alice", "bob"}
    without(run, *[s for s in run.seen if getattr(s, "user", "") == "carol"])

    assert rules_of(run) >= {"I12"}


@pytest.mark.parametrize("fault", ["back", "beyond", "unread"])
def test_check_wrong_mark_is_found(run: Run, fault: str) -> None:
    """Marks move forward only and stay below the head; unread is exact at the end."""
    mark = [m for m in all_of(run, Marked) if m.read > 0][-1]
    listed = all_of(run, Listed)[0]
    match fault:
        case "back":
            run.seen.append(replace(mark, t=60.0, read=mark.read - 1))
        case "beyond":
            run.seen.append(replace(mark, t=60.0, received=10_000))
        case _:
            change(run, listed, replace(listed, unread=listed.unread + 1))

    assert rules_of(run) == {"I14"}


def test_check_decreasing_timestamp_is_found(run: Run) -> None:
    """Timestamps increase with seq."""
    first, second = next(f for f in all_of(run, FinalHistory) if f.chat == "duo").rows[:2]
    later = first.ts

    def set_ts(row: Row | None) -> Row | None:
        return replace(row, ts=later) if row is not None and row.mid == second.mid else row

    for seen in list(run.seen):
        if isinstance(seen, Pushed):
            change(run, seen, replace(seen, row=set_ts(seen.row)))
        elif isinstance(seen, PageRead | FinalHistory | WarmRows):
            change(run, seen, replace(seen, rows=tuple(set_ts(row) for row in seen.rows)))
        elif isinstance(seen, Acked) and seen.mid == second.mid:
            change(run, seen, replace(seen, ts=later))

    assert rules_of(run) == {"P3"}


def test_check_unacked_row_only_in_warm_tier_is_found(run: Run) -> None:
    """At the end of a run both tiers have the same messages, acked or not."""
    warm = next(w for w in all_of(run, WarmRows) if w.chat == "duo")
    top = warm.rows[-1]
    row = Row("duo", top.seq + 1, top.ts + 1, "mX", "bob", "late", "late")
    run.seen.append(Sent(50.0, "bob", "bob-1", 999, "duo", "late", "late"))
    change(run, warm, replace(warm, rows=(*warm.rows, row)))
    relist(run, "duo", top.seq + 1)
    push_to_all(run, row)

    assert rules_of(run) == {"WARM"}


def test_report_counts_rules_and_bounds_text(run: Run) -> None:
    """The report has a count per rule and shows the first violations."""
    change_rows(run, "trio", lambda rows: ())

    text = report(check(run), shown_max=3)

    assert text.startswith("I1 x ")
    assert "… and " in text
    assert len(text.splitlines()) == 5
