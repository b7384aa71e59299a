"""The session state machine: every stage and event, and the events that are sent (guarantee P4)."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.ids import Epoch, Seq
from chatserver.gateway.session.state_machine import (
    TRANSITIONS,
    Decision,
    ForbiddenTransition,
    SessionStage,
    SessionState,
    Trigger,
)

CURRENT, OLD = Epoch("E2"), Epoch("E1")

APPLY: dict[Trigger, Callable[[SessionState], bool]] = {
    Trigger.HELLO: SessionState.hello,
    Trigger.WELCOME: lambda state: state.welcome(CURRENT, Seq(4)),
    Trigger.GO_LIVE: lambda state: state.go_live(Seq(4)),
    Trigger.RECOVER: SessionState.recover,
    Trigger.SNAPSHOT: lambda state: state.snapshot(CURRENT, Seq(4)),
    Trigger.ABANDON: SessionState.abandon,
    Trigger.CLOSE: SessionState.close,
}
PATHS = {
    SessionStage.NEW: [],
    SessionStage.OPENING: [Trigger.HELLO],
    SessionStage.WELCOMED: [Trigger.HELLO, Trigger.WELCOME],
    SessionStage.LIVE: [Trigger.HELLO, Trigger.WELCOME, Trigger.GO_LIVE],
    SessionStage.RECOVERING: [Trigger.HELLO, Trigger.WELCOME, Trigger.GO_LIVE, Trigger.RECOVER],
    SessionStage.CLOSED: [Trigger.CLOSE],
}


def state_in(stage: SessionStage) -> SessionState:
    """Return a session in a stage."""
    state = SessionState()
    for event in PATHS[stage]:
        APPLY[event](state)
    assert state.stage is stage
    return state


def live_state(seq: int, head: int | None = None) -> SessionState:
    """Return a live session whose device is at `seq`."""
    state = SessionState()
    state.hello()
    state.welcome(CURRENT, Seq(seq))
    state.go_live(Seq(seq if head is None else head))
    return state


# transitions


@pytest.mark.parametrize(("stage", "event"), list(itertools.product(SessionStage, Trigger)))
def test_event_in_a_stage_follows_the_table_or_is_forbidden(
    stage: SessionStage, event: Trigger
) -> None:
    """Every pair of stage and event moves as in the table, or changes nothing."""
    state = state_in(stage)
    target = TRANSITIONS.get((stage, event))

    if stage is SessionStage.CLOSED:
        assert not APPLY[event](state)
        assert state.stage is SessionStage.CLOSED
    elif target is None:
        before = state.cursor
        with pytest.raises(ForbiddenTransition, match=f"{event.value} in stage {stage.value}"):
            APPLY[event](state)
        assert (state.stage, state.cursor) == (stage, before)
    else:
        assert APPLY[event](state)
        assert state.stage is target


@pytest.mark.parametrize(
    ("stage", "is_open", "is_welcomed"),
    [
        (SessionStage.NEW, False, False),
        (SessionStage.OPENING, True, False),
        (SessionStage.WELCOMED, True, True),
        (SessionStage.LIVE, True, True),
        (SessionStage.RECOVERING, True, True),
        (SessionStage.CLOSED, False, False),
    ],
)
def test_stage_decides_whether_the_session_is_open_and_welcomed(
    stage: SessionStage, is_open: bool, is_welcomed: bool
) -> None:
    """A session is registered while it is open, and requests get responses once it is welcomed."""
    state = state_in(stage)

    assert (state.is_open, state.is_welcomed) == (is_open, is_welcomed)


@pytest.mark.parametrize("stage", SessionStage)
def test_only_a_live_session_is_sent_events(stage: SessionStage) -> None:
    """The next event of the device's own epoch is sent in one stage only."""
    state = state_in(stage)
    following = Seq(state.cursor.seq + 1)

    decision = state.handle_event(state.cursor.epoch, following)

    assert (decision is Decision.SEND) == (stage is SessionStage.LIVE)


@pytest.mark.parametrize("stage", SessionStage)
def test_stored_positions_are_reported_only_in_the_epoch_of_the_device(stage: SessionStage) -> None:
    """A device in another epoch would mark lost messages as stored."""
    state = state_in(stage)

    assert state.can_report_stored(CURRENT) == (
        stage in (SessionStage.LIVE, SessionStage.RECOVERING)
    )
    assert not state.can_report_stored(OLD)


# frames of the client


def test_frames_are_held_from_hello_until_the_session_is_live() -> None:
    """Requests are answered after `welcome`, in the order in which they arrived."""
    state = SessionState()

    assert not state.is_held
    state.hello()
    assert state.is_held
    assert not state.release()
    state.welcome(CURRENT, Seq(0))
    assert not state.release()
    state.go_live(Seq(0))
    assert state.release()
    assert not state.is_held


def test_frames_are_held_while_a_snapshot_is_read_or_a_lookup_is_pending() -> None:
    """A later frame never overtakes one that waits."""
    state = live_state(0)
    state.release()

    state.recover()
    assert state.is_held
    state.abandon()
    state.is_looking_up = True
    assert not state.release()
    state.is_looking_up = False
    assert state.release()


# the device's position


def test_events_that_arrive_while_a_session_opens_are_read_from_the_inbox() -> None:
    """Events that cannot be sent yet are not lost: the session catches up when it goes live."""
    state = SessionState()
    state.hello()
    state.welcome(CURRENT, Seq(4))

    assert state.handle_event(CURRENT, Seq(5)) is Decision.DROP
    assert not state.record_head(Seq(6))
    state.go_live(Seq(4))

    assert state.cursor.is_behind
    assert state.cursor.head == 6


def test_abandoned_snapshot_keeps_the_cursor_of_the_device() -> None:
    """Tasks that hold the older cursor stop, and events of other epochs are forgotten."""
    state = live_state(4, head=9)
    before = state.cursor
    state.recover()
    state.handle_event(OLD, Seq(50))

    state.abandon()

    assert (state.cursor.epoch, state.cursor.seq, state.cursor.head) == (CURRENT, 4, 4)
    assert not state.is_current(before, CURRENT)
    assert state.is_current(state.cursor, CURRENT)
    assert not state.is_current(state.cursor, OLD)


def test_event_of_another_epoch_is_a_gap_and_moves_nothing() -> None:
    """A seq means nothing outside its epoch."""
    state = live_state(4)

    assert state.handle_event(OLD, Seq(5)) is Decision.GAP
    assert (state.cursor.seq, state.cursor.head, state.cursor.is_behind) == (4, 4, False)


@pytest.mark.parametrize(
    ("seq", "decision", "head"),
    [
        (5, Decision.SEND, 5),
        (4, Decision.DROP, 4),
        (1, Decision.DROP, 4),
        (6, Decision.GAP, 6),
        (99, Decision.GAP, 99),
    ],
)
def test_event_is_sent_only_if_it_has_the_next_seq(seq: int, decision: Decision, head: int) -> None:
    """An older event was sent already; a newer one leaves a gap to read."""
    state = live_state(4)

    assert state.handle_event(CURRENT, Seq(seq)) is decision
    assert state.cursor.head == head


def test_device_that_starts_behind_is_behind_until_the_head() -> None:
    """A reconnecting device gets all missed events."""
    state = live_state(4, head=6)

    assert state.cursor.is_behind
    state.handle_event(CURRENT, Seq(5))
    assert state.cursor.is_behind
    state.handle_event(CURRENT, Seq(6))
    assert not state.cursor.is_behind


@dataclasses.dataclass
class Device:
    """A session that handles pushed events and reads gaps from the inbox."""

    state: SessionState
    sent: list[int] = dataclasses.field(default_factory=list)

    def push(self, epoch: Epoch, seq: int) -> None:
        """Handle a pushed event."""
        if self.state.handle_event(epoch, Seq(seq)) is Decision.SEND:
            self.sent.append(seq)

    def read(self, inbox_head: int, limit: int) -> None:
        """Handle a page of the inbox."""
        at = self.state.cursor.seq
        for seq in range(at + 1, min(inbox_head, at + limit) + 1):
            self.push(CURRENT, seq)


pushes = st.tuples(st.just("push"), st.integers(0, 40))
other_epochs = st.tuples(st.just("other epoch"), st.integers(0, 40))
reads = st.tuples(st.just("read"), st.integers(1, 5))


@given(st.integers(0, 10), st.lists(st.one_of(pushes, pushes, other_epochs, reads), max_size=60))
def test_any_interleaving_of_pushes_and_pages_sends_each_event_once_in_order(
    start: int, steps: list[tuple[str, int]]
) -> None:
    """Duplicates, gaps, late pushes and inbox pages in any order give start + 1, start + 2 …"""
    device = Device(live_state(start))
    newest = start
    for step, number in steps:
        if step == "push":
            newest = max(newest, number)
            device.push(CURRENT, number)
        elif step == "other epoch":
            device.push(OLD, number)
        else:
            device.read(newest, number)
        cursor = device.state.cursor
        assert cursor.seq <= cursor.head <= newest
        assert device.sent == list(range(start + 1, cursor.seq + 1))

    while device.state.cursor.is_behind:
        device.read(newest, 3)

    assert device.sent == list(range(start + 1, newest + 1))


@given(st.permutations(range(1, 13)))
def test_pushes_in_any_order_lose_nothing(order: list[int]) -> None:
    """A session that could not send a push is behind until it has read the inbox."""
    device = Device(live_state(0))

    for seq in order:
        device.push(CURRENT, seq)
    is_behind, sent_before = device.state.cursor.is_behind, len(device.sent)
    device.read(12, 12)

    assert is_behind == (sent_before < 12)
    assert device.sent == list(range(1, 13))


# every sequence of calls

epochs = st.sampled_from([OLD, CURRENT])
seqs = st.integers(0, 5)
# An event, the next event and a close are three times as frequent as the other calls.
calls = st.tuples(
    st.sampled_from([*Trigger, Trigger.CLOSE, Trigger.CLOSE, *["event", "next event"] * 3]),
    epochs,
    seqs,
)


@settings(max_examples=500)
@given(st.lists(calls, max_size=40))
def test_no_sequence_of_calls_sends_an_event_that_the_device_cannot_place(
    script: list[tuple[Trigger | str, Epoch, int]],
) -> None:
    """No event precedes `welcome` or the `reset` of its epoch, is repeated, or follows CLOSE.

    The model of the device uses only the frames that it was sent.
    """
    state = SessionState()
    position: tuple[Epoch, int] | None = None  # the position that the device assumes
    is_closed = False
    for call, epoch, seq in script:
        stage, accepted = state.stage, False
        if isinstance(call, str):
            event_seq = state.cursor.seq + 1 if call == "next event" else seq
            if state.handle_event(epoch, Seq(event_seq)) is Decision.SEND:
                assert not is_closed
                assert stage is SessionStage.LIVE
                assert position == (epoch, event_seq - 1)
                position = (epoch, event_seq)
            assert state.stage is stage
            continue
        with contextlib.suppress(ForbiddenTransition):
            match call:
                case Trigger.WELCOME:
                    accepted = state.welcome(epoch, Seq(seq))
                case Trigger.SNAPSHOT:
                    accepted = state.snapshot(epoch, Seq(seq))
                case Trigger.GO_LIVE:
                    accepted = state.go_live(Seq(seq))
                case _:
                    accepted = APPLY[call](state)
        assert accepted == (not is_closed and (stage, call) in TRANSITIONS)
        assert state.stage is (TRANSITIONS[stage, call] if accepted else stage)
        if accepted and call in (Trigger.WELCOME, Trigger.SNAPSHOT):
            position = (epoch, seq)
        is_closed = is_closed or call is Trigger.CLOSE
        if position is not None:
            assert (state.cursor.epoch, state.cursor.seq) == position
            assert state.is_welcomed != is_closed
