"""Session limits over all gateways: one per device, and a maximum per user."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.domain.ids import DeviceId, GatewayId, SessionId, UserId
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.presence_states import PresenceStates
from chatserver.hot.users.user_sessions import Claim, Claimed, UserSessions
from tests.integration.hot.support import Scripts

ALICE, BOB = UserId("alice"), UserId("bob")
ONE, TWO = GatewayId("gw-1"), GatewayId("gw-2")
SESSIONS_MAX = 3
TTL_S = 600  # longer than any test takes


class World:
    """Two gateways at one Redis."""

    def __init__(self, hot: HotClient) -> None:
        self.sessions = {
            gateway: UserSessions(hot=hot, gateway=gateway, sessions_max=SESSIONS_MAX, keep_s=TTL_S)
            for gateway in (ONE, TWO)
        }
        self.seen = {
            gateway: PresenceStates(hot=hot, gateway=gateway, online_ttl_s=TTL_S, keep_s=TTL_S)
            for gateway in (ONE, TWO)
        }

    async def claim(
        self, gateway: GatewayId, session: str, device: str, started_ms: int = 0
    ) -> Claimed:
        """Claim a session of alice."""
        claim = Claim(ALICE, SessionId(session), DeviceId(device), started_ms)
        (claimed,) = await self.sessions[gateway].claim([claim])
        return claimed


@pytest.fixture
async def world(hot: HotClient) -> World:
    """Two live gateways."""
    world = World(hot)
    for seen in world.seen.values():
        await seen.extend_expiry()
    return world


async def test_claim_of_a_device_replaces_its_session_on_another_gateway(world: World) -> None:
    """The result has the older session and its gateway."""
    first = await world.claim(ONE, "s1", "phone")
    second = await world.claim(TWO, "s2", "phone")

    assert first.replaced == ()
    assert second.replaced == (("s1", ONE),)
    assert second.started_ms > first.started_ms
    assert (await world.claim(TWO, "s2", "phone", second.started_ms)).replaced == ()


async def test_claim_beyond_the_limit_replaces_the_oldest(world: World) -> None:
    """The sessions may be on any gateways."""
    for number in range(SESSIONS_MAX):
        assert not (await world.claim((ONE, TWO)[number % 2], f"s{number}", f"d{number}")).replaced

    extra = await world.claim(TWO, "s9", "d9")

    assert extra.replaced == (("s0", ONE),)


async def test_claim_again_of_a_replaced_session_reports_it(world: World) -> None:
    """If the notification was lost, the repeated claim reports the replacement."""
    first = await world.claim(ONE, "s1", "phone")
    await world.claim(TWO, "s2", "phone")

    again = await world.claim(ONE, "s1", "phone", first.started_ms)

    assert again == Claimed(first.started_ms, (("s1", ONE),))


async def test_claim_again_after_a_loss_of_redis_keeps_the_newest(
    world: World, scripts: Scripts
) -> None:
    """Gateways may repeat their claims in any order."""
    first = await world.claim(ONE, "s1", "phone")
    second = await world.claim(TWO, "s2", "phone")
    scripts.redis.flushall()
    for seen in world.seen.values():
        await seen.extend_expiry()

    newer = await world.claim(TWO, "s2", "phone", second.started_ms)
    older = await world.claim(ONE, "s1", "phone", first.started_ms)

    assert newer.replaced == ()
    assert older.replaced == (("s1", ONE),)


async def test_claim_ignores_sessions_of_dead_gateways(world: World) -> None:
    """They do not count toward the limit."""
    for number in range(SESSIONS_MAX):
        await world.claim(ONE, f"s{number}", f"d{number}")
    await world.seen[ONE].leave(0.0)

    assert (await world.claim(TWO, "s8", "d0")).replaced == ()
    assert (await world.claim(TWO, "s9", "d9")).replaced == ()


async def test_release_allows_another_session(world: World, hot: HotClient) -> None:
    """A user who closes one session may open another."""
    for number in range(SESSIONS_MAX):
        await world.claim(ONE, f"s{number}", f"d{number}")

    world.sessions[ONE].release(ALICE, SessionId("s1"))

    assert (await world.claim(TWO, "s9", "d9")).replaced == ()


async def test_concurrent_claims_of_one_device_leave_one(world: World) -> None:
    """Each of fifty races over two gateways replaces all sessions but one."""
    for round_ in range(50):
        names = [f"r{round_}-{number}" for number in range(4)]
        claimed = await asyncio.gather(
            *(world.claim((ONE, TWO)[n % 2], name, "phone") for n, name in enumerate(names))
        )

        replaced = {session for each in claimed for session, _ in each.replaced} & set(names)
        starts = dict(zip(names, (each.started_ms for each in claimed), strict=True))
        assert len(replaced) == len(names) - 1
        assert set(names) - replaced == {max(starts, key=starts.__getitem__)}


async def test_claims_in_one_call_each_get_a_result(world: World) -> None:
    """A gateway repeats all its claims in few calls; users do not affect each other."""
    claims = [
        Claim(user, SessionId(f"{user}-{n}"), DeviceId(f"d{n}"), 0)
        for user in (ALICE, BOB)
        for n in range(SESSIONS_MAX + 1)
    ]

    claimed = await world.sessions[ONE].claim(claims)

    assert [bool(each.replaced) for each in claimed] == [False] * SESSIONS_MAX + [True] + [
        False
    ] * SESSIONS_MAX + [True]
    assert claimed[-1].replaced == (("bob-0", ONE),)
