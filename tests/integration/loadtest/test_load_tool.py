"""The load tool against a fake server that makes the errors of the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chatserver.loadtest import generator_limits, load_users
from chatserver.loadtest.coordinator import Coordinator, LoadFailed
from chatserver.loadtest.device import Device
from chatserver.loadtest.load_users import SetupFailed
from chatserver.loadtest.plan import SCENARIOS, Mix, Plan, Shape
from chatserver.loadtest.stub_server import StubState, open_stub
from chatserver.loadtest.worker import Worker
from tests.support.servers.processes import eventually, free_port

SPOILT = 7  # the place of the message that something happens to


def plan_of(port: int, name: str = "direct", **changes: Any) -> Plan:
    """Return a short plan."""
    scenario = SCENARIOS[name]
    plan = Plan(
        run="t",
        url=f"ws://127.0.0.1:{port}/",
        secret="x" * 32,
        audience="chatserver",
        issuer=None,
        token_s=600,
        first_user=1,
        users=2,
        rate=200,
        duration_s=0.3,
        settle_s=30,
        body_bytes=120,
        seed=1,
        connects_per_s=1000,
        shape=scenario.shape,
        mix=scenario.mix,
        storm_s=0,
        preload=scenario.preload,
    )
    return msgspec.structs.replace(plan, **changes)


async def loaded(mind: StubState, name: str = "direct", **changes: Any) -> dict[str, Any]:
    """Load a server of this mind; return what was found, counted and how long things took."""
    server, port = await open_stub(mind)
    worker = Worker(plan_of(port, name, **changes))
    counts: dict[str, int] = {}
    try:
        await worker.gather()

        def add(told: dict[str, Any]) -> None:
            for key, count in told["counts"].items():
                counts[key] = counts.get(key, 0) + count

        result = await worker.load(time.monotonic(), add)
    finally:
        worker.users.close()
        server.close()
    found = {kind: count for kind, count in result["findings"].items() if count}
    return {**result, "found": found, "counts": counts, "expected": worker.users.expected()}


def spoiling(change: Callable[[bytes], list[bytes]]) -> Callable[[str, int, bytes], list[bytes]]:
    """Return what changes the frame of one message on its way to the one user."""
    return lambda user, place, frame: (
        change(frame) if (user, place) == ("load-t-2", SPOILT) else [frame]
    )


@pytest.fixture
def heedless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for planted losses: everything else has arrived when the run ends."""

    def has_not_heard_the_newest(self: Device) -> bool:
        books = self.site.books
        return any((seen.last or 0) < books[chat].top for chat, seen in self.seen.items())

    monkeypatch.setattr(Device, "is_behind", has_not_heard_the_newest)


@pytest.mark.parametrize("name", ["direct", "small-groups", "history", "mixed"])
async def test_load_of_a_good_server_finds_nothing(name: str) -> None:
    """Each message comes to everybody, and is counted."""
    shape = msgspec.structs.replace(SCENARIOS[name].shape, small_members=4, large_members=8)

    seen = await loaded(StubState(), name, users=8, shape=shape)

    counts = seen["counts"]
    assert seen["found"] == {} and seen["unacked"] == seen["unsent"] == 0
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
async def test_load_finds_a_message_that_is_lost_repeated_or_changed(
    heedless: None, change: Callable[[bytes], list[bytes]], found: dict[str, int]
) -> None:
    """Each error planted on the way to one user is counted once, with its kind."""
    mind = StubState()
    mind.spoil = spoiling(change)

    seen = await loaded(mind)

    assert seen["found"] == found
    assert len(seen["examples"]) == len(found)


async def test_load_finds_two_messages_that_changed_places(heedless: None) -> None:
    """The later message is a jump, the earlier one is out of order; none is lost."""
    mind = StubState()
    held: list[bytes] = []

    def swap(user: str, place: int, frame: bytes) -> list[bytes]:
        if user == "load-t-2" and place == SPOILT:
            held.append(frame)
            return []
        return [frame, held.pop()] if user == "load-t-2" and held else [frame]

    mind.spoil = swap

    seen = await loaded(mind)

    assert seen["found"] == {"jumped": 1, "disordered": 1}


@pytest.mark.parametrize("inbox_max", [1000, 1])
async def test_load_asks_the_inbox_for_what_no_push_brought(
    monkeypatch: pytest.MonkeyPatch, inbox_max: int
) -> None:
    """A push may fail at the end; inbox, or history, must give it back, and then none is lost."""
    monkeypatch.setattr(load_users, "PUSH_S", 0.1)
    mind = StubState()
    mind.inbox_max = inbox_max
    mind.spoil = lambda user, place, frame: [] if place > SPOILT else [frame]

    seen = await loaded(mind)

    assert seen["found"] == {}
    assert seen["counts"]["resumed_to_settle"] == 2
    assert seen["counts"]["delivered"] == seen["expected"] == 2 * seen["counts"]["acked"]


async def test_load_through_storms_and_breaks_loses_nothing() -> None:
    """Everybody is cut off again and again, and sends again what was not answered."""
    mix = Mix(send=0.9, reconnect=0.1)

    seen = await loaded(StubState(), "resume", users=8, mix=mix, duration_s=0.8, storm_s=0.3)

    assert seen["found"] == {} and seen["unacked"] == seen["unsent"] == 0
    assert seen["counts"]["connects"] > 0
    assert seen["counts"]["delivered"] == seen["expected"]


async def test_load_of_nobody_says_so() -> None:
    """An unreachable address is reported at once, not after five minutes."""
    server, port = await open_stub(StubState())
    server.close()
    await server.wait_closed()

    with pytest.raises(SetupFailed, match="no gateway at ws://"):
        await Worker(plan_of(port)).gather()


async def test_ceiling_is_measured_with_the_same_users_and_chats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the tool, in processes of their own; the server's address is not even asked."""
    monkeypatch.setattr(
        generator_limits, "SETTLE_S", 60.0
    )  # what is on its way comes, however late
    shape = Shape(direct=0.5, small=0.5, small_members=4)

    measured = await generator_limits.measure_ceiling([plan_of(1, users=8, shape=shape)], 0.2)

    assert measured["per_s"] > 0
    assert measured["deliveries_per_s"] > measured["per_s"]


async def test_load_of_which_a_process_was_killed_says_so() -> None:
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


async def test_load_that_is_stopped_before_it_begins_says_that() -> None:
    """The user who stopped it knows why its processes were killed."""
    run = Coordinator([plan_of(free_port(), duration_s=60)])  # nobody is there: it goes on trying
    loading = asyncio.create_task(run.run(), name="load")
    await eventually(lambda: len(run._workers) == 1)
    run.stop()

    with pytest.raises(LoadFailed, match="stopped before the start"):
        await asyncio.wait_for(loading, 60)


async def test_load_with_a_process_that_fails_says_how_it_ended() -> None:
    """Before it begins there are no figures at all."""
    run = Coordinator([plan_of(1, shape=None)])  # a plan that no process can read

    with pytest.raises(LoadFailed, match="ended early: exit code 1"):
        await run.run()
