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
    PresenceState,
    SessionActivity,
)
from chatserver.errors import Unavailable
from chatserver.service.presence.user_presence import UserPresence
from tests.support.servers.processes import eventually

ALICE, BOB = UserId("alice"), UserId("bob")
AWAY_S, GRACE_S = 0.16, 0.08  # short, so that checks are frequent
SUBSCRIBER = GatewayId("gw-remote")


class World:
    """A fake Redis and a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock_reads = 0
        self.published: list[tuple[UserId, PresenceState, float]] = []
        self.changes: list[PresenceChange] = []
        self.is_down = False
        settings = config.Presence(away_after_s=AWAY_S, offline_grace_s=GRACE_S)
        self.presence = UserPresence(self, settings, self)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.clock_reads += 1
        return self.now

    async def publish(self, states: Sequence[GatewayPresence]) -> list[PresenceChange]:
        if self.is_down:
            raise Unavailable("redis is down")
        self.published += [(each.user, each.state, round(each.ago_s, 3)) for each in states]
        return [
            PresenceChange(
                each.user, each.user == ALICE, PresenceRecord(each.state, 0, 1), (SUBSCRIBER,)
            )
            for each in states
        ]

    def states_of(self, user: UserId) -> list[PresenceState]:
        """Return the states published for a user so far."""
        return [state for published_user, state, _ in self.published if published_user == user]

    def start_session(self, user: UserId = ALICE, *, is_foreground: bool = True) -> SessionActivity:
        """Start a session."""
        activity = self.presence.create_activity(is_foreground=is_foreground)
        self.presence.add_session(user, activity)
        return activity

    async def wait_for_checks(self) -> None:
        """Wait until the presence loop has checked all users; a check reads the clock."""
        enough = self.clock_reads + 12
        await eventually(lambda: self.clock_reads >= enough)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A gateway whose published changes are recorded."""
    world = World()
    task = asyncio.create_task(world.presence.run(world.changes.append))
    yield world
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_first_session_is_published_once(world: World) -> None:
    """A second device that does not change the state is not published."""
    world.start_session()
    await eventually(lambda: world.states_of(ALICE) == [PresenceState.ONLINE])

    world.start_session()
    await world.wait_for_checks()

    assert world.states_of(ALICE) == [PresenceState.ONLINE]


async def test_only_changes_are_reported(world: World) -> None:
    """A state that Redis reports as unchanged is not passed to subscribers."""
    world.start_session(BOB)
    world.start_session(ALICE)

    await eventually(lambda: len(world.published) == 2)
    assert [change.user for change in world.changes] == [ALICE]


async def test_offline_is_published_after_the_grace_period_with_its_time(world: World) -> None:
    """Last seen is the end of the session, not of the grace period."""
    phone = world.start_session()
    await eventually(lambda: world.published)

    world.presence.remove_session(ALICE, phone)
    await world.wait_for_checks()
    assert world.states_of(ALICE) == [PresenceState.ONLINE]
    world.now += GRACE_S
    await eventually(lambda: len(world.published) == 2)

    assert world.published[-1] == (ALICE, PresenceState.OFFLINE, GRACE_S)


async def test_reconnect_within_the_grace_period_is_not_published(world: World) -> None:
    """The user was online all the time."""
    phone = world.start_session()
    await eventually(lambda: world.published)
    world.presence.remove_session(ALICE, phone)
    world.now += GRACE_S / 2
    world.start_session()
    world.now += GRACE_S

    await world.wait_for_checks()

    assert world.states_of(ALICE) == [PresenceState.ONLINE]


async def test_background_foreground_and_idle_are_published(world: World) -> None:
    """Each change of the state is published at the next check."""
    phone = world.start_session()
    await eventually(lambda: world.states_of(ALICE) == [PresenceState.ONLINE])
    phone.is_foreground = False
    world.presence.record_activity(ALICE, phone)
    await eventually(lambda: world.states_of(ALICE)[-1] is PresenceState.AWAY)
    phone.is_foreground = True
    world.presence.record_activity(ALICE, phone)
    await eventually(lambda: world.states_of(ALICE)[-1] is PresenceState.ONLINE)

    async def becomes_away() -> bool:
        world.now += AWAY_S / 4
        return world.states_of(ALICE)[-1] is PresenceState.AWAY

    await eventually(becomes_away, what="an idle user is away")
    world.presence.record_activity(ALICE, phone)
    await eventually(lambda: world.states_of(ALICE)[-1] is PresenceState.ONLINE)


async def test_presence_during_an_outage_is_published_later(world: World) -> None:
    """States that could not be published while Redis was down are published afterwards."""
    world.is_down = True
    phone = world.start_session()
    world.start_session(BOB)
    await world.wait_for_checks()
    world.presence.remove_session(ALICE, phone)
    world.now += GRACE_S
    await world.wait_for_checks()

    world.is_down = False

    await eventually(lambda: world.states_of(BOB) == [PresenceState.ONLINE])
    await eventually(lambda: world.states_of(ALICE)[-1:] == [PresenceState.OFFLINE])


async def test_republish_all_publishes_every_user(world: World) -> None:
    """Redis may have lost the states, or treated this gateway as down."""
    world.start_session()
    world.start_session(BOB, is_foreground=False)
    await eventually(lambda: len(world.published) == 2)

    world.presence.republish_all()

    await eventually(lambda: len(world.published) == 4)
    assert world.states_of(ALICE) == [PresenceState.ONLINE] * 2
    assert world.states_of(BOB) == [PresenceState.AWAY] * 2
