"""The checker passes lawful histories and names each planted fault by its rule."""

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
from tests.unit.support.good_run import CHOICES, play

replace = msgspec.structs.replace
O = TypeVar("O", bound=AnyObservation)  # noqa: E741


@pytest.fixture
def good() -> Run:
    """A lawful run with a good deal of everything in it."""
    choices = random.Random(7).choices(CHOICES, k=400)
    return play(11, [*choices, "ack", "ack", "page"])


def rules_of(run: Run) -> set[str]:
    """Return the names of the rules that the run breaks."""
    return {violation.rule for violation in check(run)}


def all_of(run: Run, kind: type[O]) -> list[O]:
    """Return the observations of one kind."""
    return [seen for seen in run.seen if isinstance(seen, kind)]


def change(run: Run, old: AnyObservation, *new: AnyObservation) -> None:
    """Put `new` in the place of `old`."""
    at = next(i for i, seen in enumerate(run.seen) if seen is old)
    run.seen[at : at + 1] = new


def change_rows(run: Run, chat: str, alter: Callable[[tuple[Row, ...]], tuple[Row, ...]]) -> None:
    """Alter what the final histories and the warm tier hold of a chat, read at the very end."""
    for seen in list(run.seen):
        if isinstance(seen, FinalHistory | WarmRows) and seen.chat == chat:
            change(run, seen, replace(seen, t=100.0, rows=alter(seen.rows)))


def without(run: Run, *gone: AnyObservation) -> None:
    """Take observations out of the run."""
    names = {id(seen) for seen in gone}
    run.seen = [seen for seen in run.seen if id(seen) not in names]


# ── lawful histories ────────────────────────────────────────────────────────────────────────────


@given(seed=st.integers(0, 2**32), choices=st.lists(st.sampled_from(CHOICES), max_size=80))
def test_check_lawful_run_passes(seed: int, choices: list[str]) -> None:
    """No history of a server that keeps its promises is refused."""
    violations = check(play(seed, choices))

    assert not violations, report(violations)


def test_check_good_run_has_every_kind_of_observation(good: Run) -> None:
    """The run that the mutations start from is lawful and leaves no kind out."""
    assert not check(good), report(check(good))
    assert {type(seen) for seen in good.seen} == set(AnyObservation.__args__)
    assert any(ack.dup for ack in all_of(good, Acked))


def test_run_dumped_and_loaded_is_the_same(good: Run) -> None:
    """A run written after a failure can be judged again."""
    again = load_run(dump_run(good))

    assert again == good


def test_check_reset_with_snapshot_passes(good: Run) -> None:
    """After `reset`, entries that the snapshot covers need not be delivered."""
    device = ("bob", "bob-1")
    steps = [s for s in all_of(good, Pushed) if (s.user, s.device) == device]
    lost, kept = steps[-10:-5], steps[-5:]
    tops = {
        chat: max(s.row.seq for s in steps[:-5] if s.row and s.chat == chat)
        for chat in ("duo", "trio")
    }
    change(good, lost[0], Started(lost[0].t, *device, "e2", 0, tops))
    without(good, *lost[1:])
    for seq, step in enumerate(kept, start=1):
        change(good, step, replace(step, epoch="e2", seq=seq))

    assert not check(good), report(check(good))


# ── planted faults ──────────────────────────────────────────────────────────────────────────────


def test_check_no_ack_is_void(good: Run) -> None:
    """A run in which nothing was acked proves nothing."""
    without(good, *all_of(good, Acked))

    assert rules_of(good) == {"VOID"}


def test_check_history_not_read_is_void(good: Run) -> None:
    """A run whose end was not read proves nothing."""
    without(good, all_of(good, FinalHistory)[0], all_of(good, WarmRows)[0])

    assert [violation.rule for violation in check(good)] == ["VOID", "VOID"]


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_check_acked_message_dropped_is_lost(good: Run, where: str) -> None:
    """An acked message that is nowhere at the end is a loss, wherever it stood."""
    acked = sorted({ack.seq for ack in all_of(good, Acked) if ack.chat == "trio"})
    gone = {"first": acked[0], "middle": acked[len(acked) // 2], "last": acked[-1]}[where]
    change_rows(good, "trio", lambda rows: tuple(row for row in rows if row.seq != gone))

    violations = check(good)

    assert {violation.rule for violation in violations} == {"I1"}
    assert len(violations) == 4  # three members and the warm tier
    assert f"trio#{gone}" in violations[0].text


def test_check_message_dropped_at_one_member_is_lost(good: Run) -> None:
    """A loss for one member is a loss."""
    final = next(f for f in all_of(good, FinalHistory) if f.user == "carol")
    change(good, final, replace(final, rows=final.rows[:-1]))

    violations = check(good)

    assert {violation.rule for violation in violations} == {"I1"}
    assert "carol" in violations[0].text
    assert "postfix" in violations[0].text


def test_check_message_missing_in_warm_tier_is_lost(good: Run) -> None:
    """A message that the persist worker dropped is lost, although Redis still has it."""
    warm = next(w for w in all_of(good, WarmRows) if w.chat == "duo")
    change(good, warm, replace(warm, rows=warm.rows[:4] + warm.rows[5:]))

    violations = check(good)

    assert [violation.rule for violation in violations] == ["I1"]
    assert "the warm tier" in violations[0].text


def test_check_message_nobody_sent_is_phantom(good: Run) -> None:
    """A message out of nowhere is a phantom."""
    top = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[-1]
    ghost = replace(top, seq=top.seq + 1, ts=top.ts + 1, mid="ghost", ref="ghost")
    change_rows(good, "duo", lambda rows: (*rows, ghost))
    relist(good, "duo", top.seq + 1)
    push_to_all(good, ghost)

    assert rules_of(good) == {"I2"}


def relist(run: Run, chat: str, top: int) -> None:
    """Let the chat lists agree with a new head."""
    for seen in all_of(run, Listed):
        if seen.chat == chat:
            change(run, seen, replace(seen, top=top, unread=top - seen.read))


def push_to_all(run: Run, row: Row) -> None:
    """Show a message to all devices, behind everything else."""
    ends: dict[tuple[str, str], Started | Pushed] = {}
    for seen in run.seen:
        if isinstance(seen, Started | Pushed):
            ends[seen.user, seen.device] = seen
    for (user, device), end in ends.items():
        if user in run.members[row.chat]:
            run.seen.append(Pushed(99.0, user, device, end.epoch, end.seq + 1, row.chat, row))


def test_check_body_rewritten_is_phantom(good: Run) -> None:
    """A changed body is a message that nobody sent."""
    push = all_of(good, Pushed)[20]
    assert push.row is not None
    change(good, push, replace(push, row=replace(push.row, body="something else")))

    violations = check(good)

    assert [violation.rule for violation in violations] == ["I2"]
    assert "has a body that was never sent" in violations[0].text


def test_check_message_committed_twice_is_duplicate(good: Run) -> None:
    """A resend that got a second place is a duplicate."""
    top = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[-1]
    twin = replace(top, seq=top.seq + 1, ts=top.ts + 1, mid="twin")
    change_rows(good, "duo", lambda rows: (*rows, twin))
    relist(good, "duo", top.seq + 1)
    push_to_all(good, twin)

    assert rules_of(good) == {"I3"}


def test_check_row_listed_twice_is_duplicate(good: Run) -> None:
    """A page walk that shows a message twice is a duplicate."""
    final = all_of(good, FinalHistory)[0]
    change(good, final, replace(final, rows=(*final.rows[:3], *final.rows[2:])))

    assert rules_of(good) == {"I3"}


def test_check_two_messages_swapped_break_place(good: Run) -> None:
    """Two messages that changed places in one history contradict what was seen before."""
    final = all_of(good, FinalHistory)[0]
    a, b = final.rows[4:6]
    swapped = (replace(b, seq=a.seq, ts=a.ts), replace(a, seq=b.seq, ts=b.ts))
    change(good, final, replace(final, rows=final.rows[:4] + swapped + final.rows[6:]))

    assert rules_of(good) == {"I3", "I5"}  # each also stands at two places


def test_check_seq_given_out_twice_breaks_place(good: Run) -> None:
    """A Redis that went back in time and gave a seq to another message is found."""
    top = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[-1]
    sent = Sent(50.0, "bob", "bob-1", 999, "duo", "later", "later")
    ack = Acked(
        51.0, "bob", "bob-1", 999, "duo", "later", "later", top.seq, top.ts + 9, "mX", False
    )
    good.seen += [sent, ack]

    assert rules_of(good) == {"I5", "I1"}  # the place holds another, so this one is lost


def test_check_seq_never_filled_is_hole(good: Run) -> None:
    """A seq without an ack that stays empty is a hole."""
    top = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[-1]
    names = ("bob", "bob-1", 999, "duo", "later", "later")
    row = Row("duo", top.seq + 2, top.ts + 9, "mX", "bob", "later", "later")
    good.seen += [Sent(50.0, *names), Acked(51.0, *names, row.seq, row.ts, row.mid, False)]
    change_rows(good, "duo", lambda rows: (*rows, row))
    relist(good, "duo", row.seq)
    push_to_all(good, row)

    violations = check(good)

    assert {violation.rule for violation in violations} == {"I4"}
    assert f"duo#{top.seq + 1}" in violations[0].text


def test_check_event_dropped_at_one_device_tears_inbox(good: Run) -> None:
    """An event that one device was never sent shows as a hole, and as a message not delivered."""
    push = [p for p in all_of(good, Pushed) if p.device == "bob-1"][10]
    without(good, push)

    assert rules_of(good) == {"P4", "I18"}


def test_check_last_event_dropped_at_one_device_is_undelivered(good: Run) -> None:
    """A lost last event leaves no hole behind; it is found all the same."""
    push = [p for p in all_of(good, Pushed) if p.device == "bob-1"][-1]
    without(good, push)

    violations = check(good)

    assert [violation.rule for violation in violations] == ["I18"]
    assert "bob/bob-1" in violations[0].text


def test_check_event_repeated_at_one_device_tears_inbox(good: Run) -> None:
    """An event that a device is shown twice is found, though it is the right event."""
    push = [p for p in all_of(good, Pushed) if p.device == "bob-1"][10]
    change(good, push, push, replace(push, t=push.t + 0.0001))

    assert rules_of(good) == {"P4", "I6"}


def test_check_events_reordered_at_one_device_are_out_of_order(good: Run) -> None:
    """Two messages of a chat in the wrong order at one device are found by their chat seq."""
    pushes = [p for p in all_of(good, Pushed) if p.device == "bob-1"]
    a, b = next((a, b) for a, b in pairwise(pushes) if a.chat == b.chat)
    change(good, a, replace(a, row=b.row))
    change(good, b, replace(b, row=a.row))

    violations = check(good)

    assert [violation.rule for violation in violations] == ["I6"]
    assert "bob/bob-1" in violations[0].text


def test_check_pipelined_sends_reordered_break_session_order(good: Run) -> None:
    """Of two sends on one connection, the earlier one gets the lower place."""
    top = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[-1]
    rows = [
        Row("duo", top.seq + 1, top.ts + 1, "mB", "bob", "second", "second"),
        Row("duo", top.seq + 2, top.ts + 2, "mA", "bob", "first", "first"),
    ]
    for ref in ("first", "second"):
        good.seen.append(Sent(50.0, "bob", "bob-1", 999, "duo", ref, ref))
    for row in rows:
        names = ("bob", "bob-1", 999, "duo", row.ref, row.ref)
        good.seen.append(Acked(51.0, *names, row.seq, row.ts, row.mid, False))
        push_to_all(good, row)
    change_rows(good, "duo", lambda old: (*old, *rows))
    relist(good, "duo", top.seq + 2)

    assert rules_of(good) == {"I7"}


def test_check_message_before_one_known_earlier_breaks_real_time(good: Run) -> None:
    """A message acked before another one was sent precedes it, whoever the senders are."""
    top = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[-1]
    rows = [
        Row("duo", top.seq + 2, top.ts + 2, "mA", "alice", "early", "early"),
        Row("duo", top.seq + 1, top.ts + 1, "mB", "bob", "late", "late"),
    ]
    for t, row in enumerate(rows, start=50):
        names = (row.sender, f"{row.sender}-1", 900 + t, "duo", row.ref, row.ref)
        good.seen.append(Sent(t + 0.1, *names))
        good.seen.append(Acked(t + 0.2, *names, row.seq, row.ts, row.mid, False))
    for row in reversed(rows):
        push_to_all(good, row)
    change_rows(good, "duo", lambda old: (*old, *reversed(rows)))
    relist(good, "duo", top.seq + 2)

    assert rules_of(good) == {"I8"}


@pytest.mark.parametrize("fault", ["hole", "stale", "false_end"])
def test_check_bad_page_breaks_reads(good: Run, fault: str) -> None:
    """A page with a hole, without what was acked, or with a false end is found."""
    page = next(
        p for p in reversed(all_of(good, PageRead)) if len(p.rows) >= 3 and p.rows[0].seq > 1
    )
    match fault:
        case "hole":
            change(good, page, replace(page, rows=page.rows[:1] + page.rows[2:]))
        case "stale":
            newest = replace(page, before=None, after=None, rows=page.rows[:1], more=True)
            change(good, page, replace(newest, asked=90.0, t=91.0))
        case _:
            change(good, page, replace(page, before=page.rows[-1].seq + 1, after=None, more=False))

    assert rules_of(good) == {"I9"}


def test_check_refused_message_that_exists_is_found(good: Run) -> None:
    """A message that was finally refused must not appear later."""
    ack = next(a for a in all_of(good, Acked) if not a.dup and len(tries(good, a)) == 1)
    change(good, ack, Refused(ack.t, ack.user, ack.conn, ack.chat, ack.ref, "forbidden"))

    violations = check(good)

    assert [violation.rule for violation in violations] == ["I11"]


def test_check_unavailable_message_that_exists_passes(good: Run) -> None:
    """`unavailable` is the third outcome: the message may exist."""
    ack = next(a for a in all_of(good, Acked) if not a.dup and len(tries(good, a)) == 1)
    change(good, ack, Refused(ack.t, ack.user, ack.conn, ack.chat, ack.ref, "unavailable"))

    assert not check(good), report(check(good))


def tries(run: Run, ack: Acked) -> list[Sent]:
    """Return the tries of the message that an ack is about."""
    return [s for s in all_of(run, Sent) if (s.user, s.ref) == (ack.user, ack.ref)]


def test_check_push_to_non_member_is_leak(good: Run) -> None:
    """A message that reaches somebody outside of the chat is a leak."""
    row = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[0]
    end = [s for s in good.seen if isinstance(s, Pushed | Started) and s.device == "carol-1"][-1]
    good.seen.append(Pushed(60.0, "carol", "carol-1", "e1", end.seq + 1, "duo", row))

    violations = check(good)

    assert [violation.rule for violation in violations] == ["I12"]
    assert "carol" in violations[0].text


def test_check_message_of_non_member_is_leak(good: Run) -> None:
    """A non-member's message in a history is a leak the other way."""
    good.members["trio"] = {"alice", "bob"}
    without(good, *[s for s in good.seen if getattr(s, "user", "") == "carol"])

    assert rules_of(good) >= {"I12"}


@pytest.mark.parametrize("fault", ["back", "beyond", "unread"])
def test_check_wrong_mark_is_found(good: Run, fault: str) -> None:
    """Marks move forward only and stay below the head; unread is exact at the end."""
    mark = [m for m in all_of(good, Marked) if m.read > 0][-1]
    listed = all_of(good, Listed)[0]
    match fault:
        case "back":
            good.seen.append(replace(mark, t=60.0, read=mark.read - 1))
        case "beyond":
            good.seen.append(replace(mark, t=60.0, received=10_000))
        case _:
            change(good, listed, replace(listed, unread=listed.unread + 1))

    assert rules_of(good) == {"I14"}


def test_check_timestamp_that_falls_is_found(good: Run) -> None:
    """Timestamps rise with seq whatever the clocks do."""
    first, second = next(f for f in all_of(good, FinalHistory) if f.chat == "duo").rows[:2]
    later = first.ts

    def set_ts(row: Row | None) -> Row | None:
        return replace(row, ts=later) if row is not None and row.mid == second.mid else row

    for seen in list(good.seen):
        if isinstance(seen, Pushed):
            change(good, seen, replace(seen, row=set_ts(seen.row)))
        elif isinstance(seen, PageRead | FinalHistory | WarmRows):
            change(good, seen, replace(seen, rows=tuple(set_ts(row) for row in seen.rows)))
        elif isinstance(seen, Acked) and seen.mid == second.mid:
            change(good, seen, replace(seen, ts=later))

    assert rules_of(good) == {"P3"}


def test_check_unacked_row_only_in_warm_tier_is_found(good: Run) -> None:
    """The two tiers hold the same messages after quiescence, acked or not."""
    warm = next(w for w in all_of(good, WarmRows) if w.chat == "duo")
    top = warm.rows[-1]
    row = Row("duo", top.seq + 1, top.ts + 1, "mX", "bob", "late", "late")
    good.seen.append(Sent(50.0, "bob", "bob-1", 999, "duo", "late", "late"))
    change(good, warm, replace(warm, rows=(*warm.rows, row)))
    relist(good, "duo", top.seq + 1)
    push_to_all(good, row)

    assert rules_of(good) == {"WARM"}


def test_report_counts_rules_and_bounds_text(good: Run) -> None:
    """A report of many violations has the count and shows the first ones."""
    change_rows(good, "trio", lambda rows: ())

    text = report(check(good), shown_max=3)

    assert text.startswith("I1 x ")
    assert "… and " in text
    assert len(text.splitlines()) == 5
