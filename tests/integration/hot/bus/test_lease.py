"""acquire_lease.lua and release_lease.lua: one holder at a time, with increasing tokens."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from chatserver import config
from chatserver.domain.clock import SystemClock
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.worker_leases import Lease, hold_all
from tests.integration.hot.support import Scripts
from tests.support.fake_clocks import FakeClock
from tests.support.servers.processes import StartRedis, eventually, redis_url_of


def claim(scripts: Scripts, owner: str, ttl_ms: int = 60_000) -> int:
    """Claim or renew the lease; return its token, or 0."""
    token: int = scripts.run(
        "acquire_lease", {"owner": owner, "ttl_ms": ttl_ms}, lease=scripts.keys.lease(0, "w")
    )
    return token


def release(scripts: Scripts, owner: str) -> int:
    """Release the lease; return whether it was held."""
    released: int = scripts.run("release_lease", {"owner": owner}, lease=scripts.keys.lease(0, "w"))
    return released


def test_lease_has_one_holder(scripts: Scripts) -> None:
    """A second claimant gets nothing and changes nothing."""
    assert claim(scripts, "a") == 1
    before = scripts.hash(scripts.keys.lease(0, "w"))

    assert claim(scripts, "b") == 0
    assert scripts.hash(scripts.keys.lease(0, "w")) == before


def test_lease_renewed_by_its_holder_keeps_the_token(scripts: Scripts) -> None:
    """A renewal does not fence its own holder."""
    claim(scripts, "a", ttl_ms=60_000)
    first = int(scripts.hash(scripts.keys.lease(0, "w"))["until_ms"])

    assert claim(scripts, "a", ttl_ms=90_000) == 1
    assert int(scripts.hash(scripts.keys.lease(0, "w"))["until_ms"]) > first


def test_lease_that_expired_goes_to_another_owner_with_a_higher_token(scripts: Scripts) -> None:
    """Tokens distinguish the new holder from the old one (fencing)."""
    claim(scripts, "a", ttl_ms=0)

    assert claim(scripts, "b") == 2
    assert claim(scripts, "a") == 0


def test_expired_lease_has_a_new_token_for_the_same_owner(scripts: Scripts) -> None:
    """Another owner may have held it meanwhile."""
    claim(scripts, "a", ttl_ms=0)

    assert claim(scripts, "a") == 2


def test_lease_that_is_released_is_free_at_once(scripts: Scripts) -> None:
    """The next holder does not wait; the token still increases."""
    claim(scripts, "a")

    assert release(scripts, "a") == 1
    assert claim(scripts, "b") == 2


def test_lease_is_released_by_its_holder_only(scripts: Scripts) -> None:
    """A late release does not release the lease of the next holder."""
    claim(scripts, "a", ttl_ms=0)
    claim(scripts, "b")

    assert release(scripts, "a") == 0
    assert claim(scripts, "c") == 0


async def test_lease_holder_knows_its_remaining_time(hot: HotClient) -> None:
    """A paused holder sees by its own clock that it may no longer write."""
    clock = FakeClock()
    lease = Lease(hot=hot, partition=0, work="w", owner="a", ttl_s=10.0, clock=clock)
    assert lease.left_s() <= 0

    assert await lease.claim()

    assert lease.left_s() == 10.0
    clock.now += 10.5
    assert lease.left_s() <= 0


async def test_lease_that_was_refused_or_released_is_not_held(hot: HotClient) -> None:
    """A refused claimant knows this at once."""
    clock = FakeClock()
    one, two = (
        Lease(hot=hot, partition=0, work="w", owner=owner, ttl_s=10.0, clock=clock)
        for owner in "ab"
    )
    await one.claim()

    assert not await two.claim()
    assert two.left_s() <= 0
    await one.release()

    assert one.left_s() <= 0
    assert await two.claim()
    assert two.token == one.token + 1


async def test_lease_not_renewed_is_taken_over(hot: HotClient) -> None:
    """Another worker continues the work of a dead one."""
    clock = FakeClock()
    await Lease(hot=hot, partition=0, work="w", owner="dead", ttl_s=0.05, clock=clock).claim()
    next_one = Lease(hot=hot, partition=0, work="w", owner="next", ttl_s=10.0, clock=clock)

    await eventually(next_one.claim, 20)

    assert next_one.token == 2


async def test_owners_that_each_have_a_part_of_the_leases_do_not_wait_forever(
    hot: HotClient,
) -> None:
    """One of them lets its leases expire, although it continues to try."""
    make = functools.partial(Lease, hot=hot, partition=0, ttl_s=0.2, clock=SystemClock())
    sets = [[make(work=work, owner=owner) for work in ("v", "w")] for owner in ("a", "b")]
    assert [await leases[number].claim() for number, leases in enumerate(sets)] == [True, True]

    async def has_all() -> bool:
        return any([await hold_all(leases) for leases in sets])

    await eventually(has_all)


async def test_lease_that_is_held_is_renewed_after_a_third_of_its_time(
    hot: HotClient, scripts: Scripts
) -> None:
    """Workers may call `hold` before each small step; most calls do not use Redis."""
    clock = FakeClock()
    lease = Lease(hot=hot, partition=0, work="w", owner="a", ttl_s=9.0, clock=clock)

    def held_until() -> int:
        return int(scripts.hash(scripts.keys.lease(0, "w"))["until_ms"])

    assert await lease.hold()
    first = held_until()
    clock.now += 2.9
    assert await lease.hold()
    assert held_until() == first

    clock.now += 0.2
    assert await lease.hold()
    assert held_until() > first
    assert lease.left_s() == 9.0


async def test_lease_is_released_on_exit_also_after_an_error(hot: HotClient) -> None:
    """Another process need not wait. A lease held by another owner is not released."""
    clock = FakeClock()
    one, two = (
        Lease(hot=hot, partition=0, work="w", owner=owner, ttl_s=10.0, clock=clock)
        for owner in "ab"
    )

    with pytest.raises(ZeroDivisionError):
        async with one.release_on_exit():
            await one.claim()
            raise ZeroDivisionError

    assert await two.hold()
    async with one.release_on_exit():
        assert not await one.hold()
    clock.now += 9.0
    assert await two.hold()


async def test_lease_that_cannot_be_released_does_not_hide_the_error(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    """If Redis is down, the error of the work is raised, and the lease expires."""
    server = start_redis("no", tmp_path)
    async with open_hot(config.Redis(url=redis_url_of(server))) as hot:
        lease = Lease(hot=hot, partition=0, work="w", owner="a", ttl_s=60.0, clock=FakeClock())
        with pytest.raises(ZeroDivisionError):
            async with lease.release_on_exit():
                await lease.claim()
                server.kill()
                raise ZeroDivisionError
