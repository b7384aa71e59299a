"""acquire_lease.lua and release_lease.lua: one holder at a time, and a token that only rises."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver import config
from chatserver.hot.leases import Lease
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.support import Scripts
from tests.support.servers.processes import StartRedis, eventually, redis_url_of

pytest_plugins = ["tests.integration.hot.fixtures"]


def claim(scripts: Scripts, owner: str, ttl_ms: int = 60_000) -> int:
    """Take or renew the lease; return its token, or 0."""
    token: int = scripts.run(
        "acquire_lease", {"lease": scripts.keys.lease(0, "w")}, {"owner": owner, "ttl_ms": ttl_ms}
    )
    return token


def release(scripts: Scripts, owner: str) -> int:
    """Give the lease back."""
    released: int = scripts.run(
        "release_lease", {"lease": scripts.keys.lease(0, "w")}, {"owner": owner}
    )
    return released


def test_lease_is_held_by_one(scripts: Scripts) -> None:
    """A second claimant gets nothing and changes nothing."""
    assert claim(scripts, "a") == 1
    before = scripts.hash(scripts.keys.lease(0, "w"))

    assert claim(scripts, "b") == 0
    assert scripts.hash(scripts.keys.lease(0, "w")) == before


def test_lease_renewed_by_its_holder_keeps_the_token(scripts: Scripts) -> None:
    """A holder that goes on is not fenced off by itself."""
    claim(scripts, "a", ttl_ms=60_000)
    first = int(scripts.hash(scripts.keys.lease(0, "w"))["until_ms"])

    assert claim(scripts, "a", ttl_ms=90_000) == 1
    assert int(scripts.hash(scripts.keys.lease(0, "w"))["until_ms"]) > first


def test_lease_that_ran_out_goes_to_another_with_a_higher_token(scripts: Scripts) -> None:
    """Tokens distinguish the new holder from the old one (fencing)."""
    claim(scripts, "a", ttl_ms=0)

    assert claim(scripts, "b") == 2
    assert claim(scripts, "a") == 0


def test_lease_that_ran_out_gives_its_holder_a_new_token(scripts: Scripts) -> None:
    """Somebody else may have held it in between."""
    claim(scripts, "a", ttl_ms=0)

    assert claim(scripts, "a") == 2


def test_lease_given_back_is_free_at_once(scripts: Scripts) -> None:
    """The next holder does not wait; the token still increases."""
    claim(scripts, "a")

    assert release(scripts, "a") == 1
    assert claim(scripts, "b") == 2


def test_lease_is_given_back_by_its_holder_only(scripts: Scripts) -> None:
    """A late release does not take the lease from the next holder."""
    claim(scripts, "a", ttl_ms=0)
    claim(scripts, "b")

    assert release(scripts, "a") == 0
    assert claim(scripts, "c") == 0


class ManualClock:
    """Monotonic time that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


async def test_lease_holder_knows_for_how_long_it_surely_holds(hot: HotClient) -> None:
    """A holder that slept sees by its own clock that it may not write any more."""
    clock = ManualClock()
    lease = Lease(hot=hot, partition=0, work="w", owner="a", ttl_s=10.0, clock=clock)
    assert lease.left_s() <= 0

    assert await lease.claim()

    assert lease.left_s() == 10.0
    clock.now_s += 10.5
    assert lease.left_s() <= 0


async def test_lease_refused_or_given_back_is_not_held(hot: HotClient) -> None:
    """A refused claimant knows at once."""
    clock = ManualClock()
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
    """The work of a dead worker goes on."""
    clock = ManualClock()
    await Lease(hot=hot, partition=0, work="w", owner="dead", ttl_s=0.05, clock=clock).claim()
    next_one = Lease(hot=hot, partition=0, work="w", owner="next", ttl_s=10.0, clock=clock)

    await eventually(next_one.claim, 20)

    assert next_one.token == 2


async def test_lease_that_is_held_is_renewed_once_a_third_of_it_is_over(
    hot: HotClient, scripts: Scripts
) -> None:
    """Work in small steps may ask before each of them: mostly that costs nothing."""
    clock = ManualClock()
    lease = Lease(hot=hot, partition=0, work="w", owner="a", ttl_s=9.0, clock=clock)

    def held_until() -> int:
        return int(scripts.hash(scripts.keys.lease(0, "w"))["until_ms"])

    assert await lease.hold()
    first = held_until()
    clock.now_s += 2.9
    assert await lease.hold()
    assert held_until() == first

    clock.now_s += 0.2
    assert await lease.hold()
    assert held_until() > first
    assert lease.left_s() == 9.0


async def test_lease_is_given_back_at_the_end_whatever_that_is(hot: HotClient) -> None:
    """Another process need not wait, also after a failure; a lost lease is not released."""
    clock = ManualClock()
    one, two = (
        Lease(hot=hot, partition=0, work="w", owner=owner, ttl_s=10.0, clock=clock)
        for owner in "ab"
    )

    with pytest.raises(ZeroDivisionError):
        async with one.released_on_exit():
            await one.claim()
            raise ZeroDivisionError

    assert await two.hold()
    async with one.released_on_exit():
        assert not await one.hold()
    clock.now_s += 9.0
    assert await two.hold()


async def test_lease_that_cannot_be_given_back_does_not_hide_what_ended_the_work(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    """Canceled while Redis is down, the work ends as canceled; the lease expires."""
    server = start_redis("no", tmp_path)
    async with open_hot(config.Redis(url=redis_url_of(server))) as hot:
        lease = Lease(hot=hot, partition=0, work="w", owner="a", ttl_s=60.0, clock=ManualClock())
        with pytest.raises(ZeroDivisionError):
            async with lease.released_on_exit():
                await lease.claim()
                server.kill()
                raise ZeroDivisionError
