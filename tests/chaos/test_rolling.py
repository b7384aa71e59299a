"""A rolling restart under load: all gateway processes are replaced; no message is lost."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.actions import Actions
from tests.chaos.conftest import PATIENT
from tests.chaos.simulation import Action, Simulation
from tests.chaos.world import SECONDS, World, new_seed
from tests.support.servers.processes import eventually
from tests.support.stack import Fleet, Stack, start_async

RESTART_S = 150.0  # three processes start one after another on a busy machine


@pytest.fixture
async def fleet(stack: Stack) -> AsyncIterator[Fleet]:
    """Three gateway processes on one port, which close connections only when they are replaced."""
    made = stack.add_fleet(3, CHAT_GATEWAY_DRAIN_S="2", **PATIENT)
    await start_async(made)
    yield made
    made.kill()
    stack.gateways.remove(made)


def has_ended_restarting(fleet: Fleet) -> bool:
    """Return whether the rolling restart is complete or was aborted."""
    return b"gateways.restarted" in fleet.output() or b"gateways.restart_given_up" in fleet.output()


@pytest.mark.parametrize("stack", [4], indirect=True)
async def test_rolling_restart_under_load_loses_and_repeats_nothing(
    world: World, stack: Stack, fleet: Fleet
) -> None:
    """Processes are replaced one by one under load; clients reconnect after the advised delay."""
    world.ports = lambda: [fleet.port]
    async with world:
        before = {child.pid for child in fleet.children}
        await world.wait_for_acks()
        fleet.send_signal(signal.SIGHUP)
        await eventually(
            lambda: b"gateways.restarted" in fleet.output(), RESTART_S, "all processes are replaced"
        )
        await world.wait_for_acks()
        after = {child.pid for child in fleet.children}
        byes = [bye for person in world.people for bye in person.chat.of_type("bye")]
        await world.finish_and_check()

    assert len(after) == 3 and not after & before
    assert len(byes) >= len(world.people)
    waits = [bye["retry_after_ms"] for bye in byes if bye["code"] == 3000]
    assert len(set(waits)) > len(waits) / 2, "all clients reconnected at once"


@pytest.mark.parametrize("stack", [4], indirect=True)
async def test_rolling_restart_under_load_is_invisible_to_sdk_clients(
    stack: Stack, fleet: Fleet, tmp_path: Path
) -> None:
    """Each of 36 SDK clients receives each entry once and in order, and reconnects as advised."""
    async with Simulation(stack, fleet, tmp_path, new_seed()) as simulation:
        actions = Actions(simulation)
        await simulation.begin()
        before = {child.pid for child in fleet.children}
        fleet.send_signal(signal.SIGHUP)

        async def is_restarted() -> bool:
            is_done = b"gateways.restarted" in fleet.output()
            for chat in range(len(simulation.chats)):
                await actions.perform(Action("send_as_all", (chat, 1)))
            await (
                simulation.wait_for_answers()
            )  # limits the number of pending sends on a slow machine
            return is_done

        await eventually(is_restarted, RESTART_S, "all processes are replaced")
        await simulation.finish_and_check()
        after = {child.pid for child in fleet.children}

    assert len(after) == 3 and not after & before
    waits = [wait for device in simulation.sdk() for wait in device.waits]
    assert all(device.waits for device in simulation.sdk()), "a device was not disconnected"
    assert len(set(waits)) > len(waits) / 2, "all clients reconnected at once"


async def test_rolling_restart_interrupted_by_a_kill_loses_and_repeats_nothing(
    world: World, stack: Stack, fleet: Fleet
) -> None:
    """If a process is killed during a rolling restart, the restart continues or is aborted.

    In both cases three processes are running again, and users notice only a reconnect.
    """
    world.ports = lambda: [fleet.port]
    async with world:
        await world.wait_for_acks()
        fleet.send_signal(signal.SIGHUP)
        await world.chat_for(SECONDS / 10)
        with contextlib.suppress(psutil.NoSuchProcess):  # the process that was just replaced
            world.random.choice(fleet.children).kill()
        await eventually(lambda: has_ended_restarting(fleet), RESTART_S, "the restart has ended")
        await world.wait_for_acks()
        await eventually(
            lambda: len(fleet.children) == 3, RESTART_S, "there are three gateways again"
        )
        await world.finish_and_check()
