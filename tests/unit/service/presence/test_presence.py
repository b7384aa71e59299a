"""Presence that a gateway publishes for its users."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from chatserver import config
from chatserver.domain.ids import GatewayId, UserId
from chatserver.domain.presence import (
    GatewayPresence,
    PresenceChange,
    PresenceRecord,
    SessionActivity,
    State,
)
from chatserver.errors import Unavailable
from chatserver.service.presence.service import UserPresence
from tests.support.servers.processes import eventually

ALICE, BOB = UserId("alice"), UserId("bob")
AWAY_S, GRACE_S = 0.16, 0.08  # short, so that it looks often; the clock is the test's own
WATCHER = GatewayId("gw-far")


class World:
    """Redis, as presence sees it, and a clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.said: list[tuple[UserId, State, float]] = []
        self.changes: list[PresenceChange] = []
        self.is_down = False
        settings = config.Presence(away_after_s=AWAY_S, offline_grace_s=GRACE_S)
        self.presence = UserPresence(self, settings, self)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def announce(self, appearances: Sequence[GatewayPresence]) -> list[PresenceChange]:
        if self.is_down:
            raise Unavailable("redis is away")
        self.said += [(one.user, one.state, round(one.ago_s, 3)) for one in appearances]
        return [
            PresenceChange(one.user, one.user == ALICE, PresenceRecord(one.state, 0, 1), (WATCHER,))
            for one in appearances
        ]

    def states_of(self, user: UserId) -> list[State]:
        """States published for a user so far."""
        return [state for who, state, _ in self.said if who == user]

    def arrive(self, user: UserId = ALICE, *, is_foreground: bool = True) -> SessionActivity:
        """Begin a session."""
        activity = self.presence.create_activity(is_foreground=is_foreground)
        self.presence.add_session(user, activity)
        return activity

    async def settle(self) -> None:
        """Let the presence have looked a few times."""
        await asyncio.sleep(0.1)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A gateway whose published changes are recorded."""
    world = World()
    task = asyncio.create_task(world.presence.run(world.changes.append))
    yield world
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_arrival_is_said_at_once_and_once(world: World) -> None:
    """A second device that makes no difference is not worth a word."""
    world.arrive()
    await eventually(lambda: world.states_of(ALICE) == [State.ONLINE])

    world.arrive()
    await world.settle()

    assert world.states_of(ALICE) == [State.ONLINE]


async def test_only_changes_are_told_on(world: World) -> None:
    """A state that Redis reports as unchanged is not published."""
    world.arrive(BOB)
    world.arrive(ALICE)

    await eventually(lambda: len(world.said) == 2)
    assert [change.user for change in world.changes] == [ALICE]


async def test_loss_is_said_after_the_grace_with_the_time_it_happened(world: World) -> None:
    """Last seen is when the session ended, not when the grace did."""
    phone = world.arrive()
    await eventually(lambda: world.said)

    world.presence.remove_session(ALICE, phone)
    await world.settle()
    assert world.states_of(ALICE) == [State.ONLINE]
    world.now += GRACE_S
    await eventually(lambda: len(world.said) == 2)

    assert world.said[-1] == (ALICE, State.OFFLINE, GRACE_S)


async def test_return_within_the_grace_is_not_said(world: World) -> None:
    """The device was never gone."""
    phone = world.arrive()
    await eventually(lambda: world.said)
    world.presence.remove_session(ALICE, phone)
    world.now += GRACE_S / 2
    world.arrive()
    world.now += GRACE_S

    await world.settle()

    assert world.states_of(ALICE) == [State.ONLINE]


async def test_hiding_showing_and_going_idle_are_said(world: World) -> None:
    """Each as soon as it is so."""
    phone = world.arrive()
    await eventually(lambda: world.states_of(ALICE) == [State.ONLINE])
    phone.is_foreground = False
    world.presence.record_activity(ALICE, phone)
    await eventually(lambda: world.states_of(ALICE)[-1] is State.AWAY)
    phone.is_foreground = True
    world.presence.record_activity(ALICE, phone)
    await eventually(lambda: world.states_of(ALICE)[-1] is State.ONLINE)

    async def time_goes_by() -> bool:
        world.now += AWAY_S / 4
        return world.states_of(ALICE)[-1] is State.AWAY

    await eventually(time_goes_by, what="an idle user is away")
    world.presence.record_activity(ALICE, phone)
    await eventually(lambda: world.states_of(ALICE)[-1] is State.ONLINE)


async def test_what_could_not_be_said_is_said_later(world: World) -> None:
    """Presence that could not be published while Redis was down is published later."""
    world.is_down = True
    phone = world.arrive()
    world.arrive(BOB)
    await world.settle()
    world.presence.remove_session(ALICE, phone)
    world.now += GRACE_S
    await world.settle()

    world.is_down = False

    await eventually(lambda: world.states_of(BOB) == [State.ONLINE])
    await eventually(lambda: world.states_of(ALICE)[-1:] == [State.OFFLINE])


async def test_all_is_said_again_when_in_doubt(world: World) -> None:
    """Redis lost it, or took this gateway for dead."""
    world.arrive()
    world.arrive(BOB, is_foreground=False)
    await eventually(lambda: len(world.said) == 2)

    world.presence.republish_all()

    await eventually(lambda: len(world.said) == 4)
    assert world.states_of(ALICE) == [State.ONLINE] * 2
    assert world.states_of(BOB) == [State.AWAY] * 2
