"""Presence over all gateways: published on one, known on others; dead ones do not count."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.domain.presence import GatewayPresence, PresenceChange, PresenceRecord, State
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.presence_subscriptions import PresenceStates
from tests.integration.hot.support import ALICE, BOB, CAROL, Scripts
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.hot.fixtures"]

ONE, TWO = GatewayId("gw-1"), GatewayId("gw-2")


@pytest.fixture
async def one(hot: HotClient) -> PresenceStates:
    """A gateway that lives."""
    seen = PresenceStates(hot=hot, gateway=ONE, online_ttl_s=60, keep_s=600)
    await seen.keep_alive()
    return seen


@pytest.fixture
async def two(hot: HotClient) -> PresenceStates:
    """Another one."""
    seen = PresenceStates(hot=hot, gateway=TWO, online_ttl_s=60, keep_s=600)
    await seen.keep_alive()
    return seen


async def say(
    seen: PresenceStates, state: State, ago_s: float = 0.0, user: UserId = ALICE
) -> PresenceChange:
    """Say how present a user is on a gateway."""
    (news,) = await seen.announce([GatewayPresence(user, state, ago_s)])
    return news


async def look(seen: PresenceStates, user: UserId = ALICE) -> PresenceRecord:
    """Watch one user."""
    return (await seen.watch([user]))[user]


async def test_announce_makes_the_best_of_all_gateways(
    one: PresenceStates, two: PresenceStates
) -> None:
    """Only what changes the whole is a change."""
    assert (await say(one, State.AWAY)).is_changed
    assert (await say(two, State.ONLINE)).is_changed
    assert not (await say(one, State.OFFLINE)).is_changed
    assert (await look(one)).state is State.ONLINE

    left = await say(two, State.AWAY)

    assert left.is_changed
    assert (await look(one)).state is State.AWAY


async def test_announce_again_changes_nothing(one: PresenceStates) -> None:
    """A gateway may publish its whole state again at any time."""
    await say(one, State.ONLINE)
    before = await look(one)

    assert not (await say(one, State.ONLINE)).is_changed
    assert (await look(one)).version == before.version


async def test_announce_names_gateways_that_watch(one: PresenceStates, two: PresenceStates) -> None:
    """Until they unsubscribe."""
    await one.watch([ALICE])
    await two.watch([ALICE, BOB])

    assert set((await say(one, State.ONLINE)).watchers) == {ONE, TWO}

    await one.unwatch([ALICE])

    assert (await say(one, State.AWAY)).watchers == (TWO,)


async def test_versions_rise_with_each_change(one: PresenceStates, two: PresenceStates) -> None:
    """Versions order notifications that overtake each other, even within a millisecond."""
    versions = []
    for seen, state in [(one, State.ONLINE), (one, State.AWAY), (two, State.AWAY)] * 5:
        news = await say(seen, state)
        versions += [news.sight.version] if news.is_changed else []

    assert len(versions) > 5
    assert versions == sorted(set(versions))


async def test_last_seen_is_when_the_user_was_there(
    one: PresenceStates, two: PresenceStates
) -> None:
    """Not the time of the report: a grace period lies between."""
    await say(one, State.ONLINE)
    online = await look(two)

    gone = (await say(one, State.OFFLINE, ago_s=30.0)).sight

    assert gone.state is State.OFFLINE
    assert gone.last_ms >= online.last_ms  # was last said then, 30 s later than the claim
    again = await look(two)
    assert (again.last_ms, again.state) == (gone.last_ms, State.OFFLINE)


async def test_users_of_a_dead_gateway_are_offline(
    hot: HotClient, one: PresenceStates, two: PresenceStates
) -> None:
    """Its reports are void, and its users were last seen when it was last alive."""
    await say(one, State.ONLINE)
    assert (await look(two)).state is State.ONLINE
    dying = PresenceStates(hot=hot, gateway=ONE, online_ttl_s=1.0, keep_s=600)
    await dying.keep_alive()

    async def is_offline() -> bool:
        return (await look(two)).state is State.OFFLINE

    await eventually(is_offline, what="alice is offline")

    assert (await look(two)).last_ms > 0
    assert not await dying.keep_alive(), "it was not told that others took it for dead"


async def test_gateway_that_lives_on_is_not_taken_for_dead(one: PresenceStates) -> None:
    """A refresh in time leaves no doubt."""
    assert await one.keep_alive()


async def test_leave_counts_until_the_grace_is_over(
    one: PresenceStates, two: PresenceStates
) -> None:
    """Users of a stopping gateway reconnect elsewhere before a change is sent."""
    await say(one, State.ONLINE)

    await one.leave(60.0)
    assert (await look(two)).state is State.ONLINE

    await one.leave(0.0)
    assert (await look(two)).state is State.OFFLINE


async def test_what_is_known_of_a_user_expires(one: PresenceStates, scripts: Scripts) -> None:
    """Last seen expires, and so do subscriptions."""
    await say(one, State.ONLINE)
    await one.watch([ALICE])

    assert 590 <= scripts.redis.ttl(scripts.keys.seen(ALICE)) <= 600
    assert 50 <= scripts.redis.ttl(scripts.keys.watched(ALICE)) <= 60


async def test_find_members_asks_for_those_alone(
    one: PresenceStates, hot: HotClient, scripts: Scripts
) -> None:
    """Current membership; a chat that is not loaded differs from an empty result."""
    chat = ChatId("g1")
    scripts.open_chat(ALICE, BOB, chat=chat, epoch=hot.epoch_of(0))

    assert await one.find_members(chat, [ALICE, CAROL]) == {ALICE}
    assert await one.find_members(chat, [CAROL]) == set()
    assert await one.find_members(ChatId("g2"), [ALICE]) is None
