"""Presence over all gateways: published on one, read on others; dead gateways do not count."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.domain.presence import (
    GatewayPresence,
    PresenceChange,
    PresenceRecord,
    PresenceState,
)
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.presence_states import PresenceStates
from tests.integration.hot.support import ALICE, BOB, CAROL, Scripts
from tests.support.servers.processes import eventually

ONE, TWO = GatewayId("gw-1"), GatewayId("gw-2")


@pytest.fixture
async def one(hot: HotClient) -> PresenceStates:
    """A live gateway."""
    seen = PresenceStates(hot=hot, gateway=ONE, online_ttl_s=60, keep_s=600)
    await seen.extend_expiry()
    return seen


@pytest.fixture
async def two(hot: HotClient) -> PresenceStates:
    """Another live gateway."""
    seen = PresenceStates(hot=hot, gateway=TWO, online_ttl_s=60, keep_s=600)
    await seen.extend_expiry()
    return seen


async def announce(
    seen: PresenceStates, state: PresenceState, ago_s: float = 0.0, user: UserId = ALICE
) -> PresenceChange:
    """Publish the presence of a user on a gateway."""
    (news,) = await seen.publish([GatewayPresence(user, state, ago_s)])
    return news


async def watch(seen: PresenceStates, user: UserId = ALICE) -> PresenceRecord:
    """Subscribe to one user; return their presence."""
    return (await seen.subscribe([user]))[user]


async def test_announce_uses_the_highest_presence_of_all_gateways(
    one: PresenceStates, two: PresenceStates
) -> None:
    """The presence changes only if the highest presence changes."""
    assert (await announce(one, PresenceState.AWAY)).is_changed
    assert (await announce(two, PresenceState.ONLINE)).is_changed
    assert not (await announce(one, PresenceState.OFFLINE)).is_changed
    assert (await watch(one)).state is PresenceState.ONLINE

    left = await announce(two, PresenceState.AWAY)

    assert left.is_changed
    assert (await watch(one)).state is PresenceState.AWAY


async def test_announce_again_changes_nothing(one: PresenceStates) -> None:
    """A gateway may publish its complete state again at any time."""
    await announce(one, PresenceState.ONLINE)
    before = await watch(one)

    assert not (await announce(one, PresenceState.ONLINE)).is_changed
    assert (await watch(one)).version == before.version


async def test_announce_returns_subscribed_gateways(
    one: PresenceStates, two: PresenceStates
) -> None:
    """They are returned until they unsubscribe."""
    await one.subscribe([ALICE])
    await two.subscribe([ALICE, BOB])

    assert set((await announce(one, PresenceState.ONLINE)).subscribers) == {ONE, TWO}

    await one.unsubscribe([ALICE])

    assert (await announce(one, PresenceState.AWAY)).subscribers == (TWO,)


async def test_versions_increase_with_each_change(one: PresenceStates, two: PresenceStates) -> None:
    """Versions order concurrent notifications, even in the same millisecond."""
    versions = []
    for seen, state in [
        (one, PresenceState.ONLINE),
        (one, PresenceState.AWAY),
        (two, PresenceState.AWAY),
    ] * 5:
        news = await announce(seen, state)
        versions += [news.record.version] if news.is_changed else []

    assert len(versions) > 5
    assert versions == sorted(set(versions))


async def test_last_seen_is_the_time_of_the_disconnect(
    one: PresenceStates, two: PresenceStates
) -> None:
    """It is not the time of the report, which comes after a grace period."""
    await announce(one, PresenceState.ONLINE)
    online = await watch(two)

    offline = (await announce(one, PresenceState.OFFLINE, ago_s=30.0)).record

    assert offline.state is PresenceState.OFFLINE
    assert offline.last_ms >= online.last_ms  # the user was reported online less than 30 s ago
    again = await watch(two)
    assert (again.last_ms, again.state) == (offline.last_ms, PresenceState.OFFLINE)


async def test_users_of_a_dead_gateway_are_offline(
    hot: HotClient, one: PresenceStates, two: PresenceStates
) -> None:
    """Its reports are ignored, and its users were last seen when it was last alive."""
    await announce(one, PresenceState.ONLINE)
    assert (await watch(two)).state is PresenceState.ONLINE
    dying = PresenceStates(hot=hot, gateway=ONE, online_ttl_s=1.0, keep_s=600)
    await dying.extend_expiry()

    async def is_offline() -> bool:
        return (await watch(two)).state is PresenceState.OFFLINE

    await eventually(is_offline, what="alice is offline")

    assert (await watch(two)).last_ms > 0
    assert not await dying.extend_expiry(), (
        "the gateway was not notified that others considered it dead"
    )


async def test_gateway_that_refreshes_in_time_is_alive(one: PresenceStates) -> None:
    """`extend_expiry` returns whether the gateway was alive without interruption."""
    assert await one.extend_expiry()


async def test_leave_changes_presence_after_the_grace_period(
    one: PresenceStates, two: PresenceStates
) -> None:
    """Users of a stopping gateway reconnect elsewhere before a change is sent."""
    await announce(one, PresenceState.ONLINE)

    await one.leave(60.0)
    assert (await watch(two)).state is PresenceState.ONLINE

    await one.leave(0.0)
    assert (await watch(two)).state is PresenceState.OFFLINE


async def test_presence_data_of_a_user_expires(one: PresenceStates, scripts: Scripts) -> None:
    """The last seen time and the subscriptions expire."""
    await announce(one, PresenceState.ONLINE)
    await one.subscribe([ALICE])

    assert 590 <= scripts.redis.ttl(scripts.keys.seen(ALICE)) <= 600
    assert 50 <= scripts.redis.ttl(scripts.keys.watched(ALICE)) <= 60


async def test_find_members_returns_current_members_among_the_given(
    one: PresenceStates, hot: HotClient, scripts: Scripts
) -> None:
    """The result is None for a chat that is not loaded."""
    chat = ChatId("g1")
    scripts.open_chat(ALICE, BOB, chat=chat, epoch=hot.get_epoch(0))

    assert await one.find_members(chat, [ALICE, CAROL]) == {ALICE}
    assert await one.find_members(chat, [CAROL]) == set()
    assert await one.find_members(ChatId("g2"), [ALICE]) is None
