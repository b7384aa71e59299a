"""The load tool against a stub server that injects faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from chatserver.loadtest import generator_limits, load_users
from chatserver.loadtest.coordinator import Coordinator, LoadFailed
from chatserver.loadtest.device import LoadDevice
from chatserver.loadtest.load_users import SetupFailed
from chatserver.loadtest.plan import SCENARIOS, Mix, Shape
from chatserver.loadtest.stub_server import StubState, open_stub
from chatserver.loadtest.worker import LoadWorker
from tests.support.load_runs import plan_of, run_load
from tests.support.servers.processes import eventually, free_port

FAULTY_SEQ = 7  # the message that is lost, repeated or changed


def fault(change: Callable[[bytes], list[bytes]]) -> Callable[[str, int, bytes], list[bytes]]:
    """Return a fault that changes the frame of one message to one user."""
    return lambda user, seq, frame: (
        change(frame) if (user, seq) == ("load-t-2", FAULTY_SEQ) else [frame]
    )


@pytest.fixture
def without_waiting_for_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """End the run without waiting for the injected losses, but wait for all other messages."""

    def has_not_received_the_newest(self: LoadDevice) -> bool:
        records = self.state.records
        return any((seen.last or 0) < records[chat].top for chat, seen in self.received.items())

    monkeypatch.setattr(LoadDevice, "is_behind", has_not_received_the_newest)


@pytest.mark.parametrize("name", ["direct", "small-groups", "history", "mixed"])
async def test_load_of_a_correct_server_reports_no_findings(name: str) -> None:
    """Each message is delivered to all members and counted."""
    shape = msgspec.structs.replace(SCENARIOS[name].shape, small_members=4, large_members=8)

    result = await run_load(StubState(), name, users=8, shape=shape)

    counts = result["counts"]
    assert result["found"] == {} and result["unacked"] == result["unsent"] == 0
    assert counts.get("acked", 0) + counts.get("pages", 0) + counts.get("connects", 0) > 0
    assert counts.get("sent", 0) == counts.get("acked", 0)
    assert (counts.get("pages", 0) > 0) is (SCENARIOS[name].mix.page > 0)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda frame: [], {"jumped": 1, "lost": 1}),
        (lambda frame: [frame, frame], {"duplicate": 1}),
        (lambda frame: [frame.replace(b"xxx", b"xyx", 1)], {"mismatched": 1}),
    ],
)
async def test_load_with_a_lost_repeated_or_changed_message_reports_it(
    without_waiting_for_losses: None, change: Callable[[bytes], list[bytes]], found: dict[str, int]
) -> None:
    """Each fault injected for one user is counted once by its kind."""
    state = StubState()
    state.fault = fault(change)

    result = await run_load(state)

    assert result["found"] == found
    assert len(result["examples"]) == len(found)


async def test_load_with_two_swapped_messages_reports_both(
    without_waiting_for_losses: None,
) -> None:
    """The later message is a gap and the earlier one is out of order; none is lost."""
    state = StubState()
    held: list[bytes] = []

    def swap(user: str, seq: int, frame: bytes) -> list[bytes]:
        if user == "load-t-2" and seq == FAULTY_SEQ:
            held.append(frame)
            return []
        return [frame, held.pop()] if user == "load-t-2" and held else [frame]

    state.fault = swap

    result = await run_load(state)

    assert result["found"] == {"jumped": 1, "disordered": 1}


@pytest.mark.parametrize("inbox_max", [1000, 1])
async def test_load_reads_messages_without_push_from_inbox_or_history(
    monkeypatch: pytest.MonkeyPatch, inbox_max: int
) -> None:
    """A push may fail at the end of a load. A message in the inbox or history is not lost."""
    monkeypatch.setattr(load_users, "PUSH_S", 0.1)
    state = StubState()
    state.inbox_max = inbox_max
    state.fault = lambda user, seq, frame: [] if seq > FAULTY_SEQ else [frame]

    result = await run_load(state)

    assert result["found"] == {}
    assert result["counts"]["resumed_to_settle"] == 2
    assert result["counts"]["delivered"] == result["expected"] == 2 * result["counts"]["acked"]


async def test_load_with_reconnect_storms_loses_nothing() -> None:
    """All users are disconnected repeatedly and resend messages without an ack."""
    mix = Mix(send=0.9, reconnect=0.1)

    result = await run_load(StubState(), "resume", users=8, mix=mix, duration_s=0.8, storm_s=0.3)

    assert result["found"] == {} and result["unacked"] == result["unsent"] == 0
    assert result["counts"]["connects"] > 0
    assert result["counts"]["delivered"] == result["expected"]


async def test_load_without_server_fails() -> None:
    """An unreachable address is reported at once, not after five minutes."""
    server, port = await open_stub(StubState())
    server.close()
    await server.wait_closed()

    with pytest.raises(SetupFailed, match="no gateway at ws://"):
        await LoadWorker(plan_of(port)).set_up()


async def test_ceiling_is_measured_with_the_same_users_and_chats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The load tool is measured in separate processes. The server of the plan is not used."""
    monkeypatch.setattr(generator_limits, "SETTLE_S", 60.0)  # messages in flight may arrive late
    shape = Shape(direct=0.5, small=0.5, small_members=4)

    measured = await generator_limits.measure_ceiling([plan_of(1, users=8, shape=shape)], 0.2)

    assert measured["per_s"] > 0
    assert measured["deliveries_per_s"] > measured["per_s"]


async def test_load_with_a_killed_process_reports_it() -> None:
    """Incomplete figures are discarded; the report says how the process ended."""
    server, port = await open_stub(StubState())
    run = Coordinator([plan_of(port, duration_s=60, first_user=first) for first in (1, 11)])
    try:
        loading = asyncio.create_task(run.run(), name="load")
        await eventually(lambda: len(run.totals.seconds) > 0)
        run._workers[1].kill()
        await asyncio.wait_for(loading, 60)
    finally:
        server.close()

    assert run.ended == "broken"
    assert "it was killed" in run.why_broken


async def test_load_stopped_before_its_start_reports_that() -> None:
    """The error names the stop and not the processes that were killed for it."""
    run = Coordinator([plan_of(free_port(), duration_s=60)])  # no server, so it keeps connecting
    loading = asyncio.create_task(run.run(), name="load")
    await eventually(lambda: len(run._workers) == 1)
    run.stop()

    with pytest.raises(LoadFailed, match="stopped before the load started"):
        await asyncio.wait_for(loading, 60)


async def test_load_with_a_failing_process_reports_its_exit_code() -> None:
    """If a process fails before the load starts, nothing is measured."""
    run = Coordinator([plan_of(1, shape=None)])  # no process can read this plan

    with pytest.raises(LoadFailed, match="ended early: exit code 1"):
        await run.run()
