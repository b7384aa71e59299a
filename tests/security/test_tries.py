"""Login attempt limits (security.md 1 API6)."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.ids import UserId
from chatserver.errors import RateLimited
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.login_rate_limits import GUESSES_FREE, LoginRateLimits
from tests.support.servers.processes import eventually

# An attempt comes back within a second, and not so fast that a slow machine never runs out.
LIMITS = config.Limits(
    logins=config.RateLimit(1.0, 3),
    guesses=config.RateLimit(0.001, 4),
    entries=config.RateLimit(0.01, 2),
)


def stranger(user: str, network: str) -> LoginAttempt:
    """An attempt of an unknown device."""
    return LoginAttempt(UserId(user), network, is_known=False)


async def test_entries_of_a_network_are_bounded(redis_url: str) -> None:
    """With any names, a network runs out of attempts; another one does not."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = LoginRateLimits(hot, LIMITS)
        for _ in range(2):
            await tries.take_entry("4-c00002")

        with pytest.raises(RateLimited) as refused:
            await tries.take_entry("4-c00002")

        assert refused.value.retry_after_ms is not None
        assert refused.value.retry_after_ms > 1000
        await tries.take_entry("4-c00003")


async def test_refusal_is_remembered_without_asking_redis(redis_url: str) -> None:
    """Until the bucket has a token again, or one was put back; a flood costs Redis nothing."""
    limits = LIMITS.model_copy(update={"logins": config.RateLimit(0.01, 3)})
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = LoginRateLimits(hot, limits)
        begun = [await tries.begin(stranger("wes", "n1")) for _ in range(3)]
        for _ in range(2):
            await tries.take_entry("4-c00004")
        with pytest.raises(RateLimited) as first:
            await tries.take_entry("4-c00004")
        with pytest.raises(RateLimited):
            await tries.begin(stranger("wes", "n1"))
        await hot.call("DEL", hot.keys.limit("entries", "4-c00004"))

        with pytest.raises(RateLimited) as second:
            await tries.take_entry("4-c00004")

        assert 0 < (second.value.retry_after_ms or 0) <= (first.value.retry_after_ms or 0)
        await tries.take_back(begun[0])
        await tries.begin(stranger("wes", "n1"))


async def test_remembered_refusals_are_bounded(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses cost an attacker nothing: the oldest refusal is forgotten, and asked for again."""
    monkeypatch.setattr("chatserver.hot.users.login_rate_limits.REFUSALS_MAX", 1)
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = LoginRateLimits(hot, LIMITS)
        for network in ("4-c00005", "4-c00006"):
            for _ in range(2):
                await tries.take_entry(network)
            with pytest.raises(RateLimited):
                await tries.take_entry(network)
        await hot.call("DEL", hot.keys.limit("entries", "4-c00005"))

        await tries.take_entry("4-c00005")


async def test_attempts_of_a_source_come_back_with_time(redis_url: str) -> None:
    """No source is locked out for good, and a right password counts for nothing."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = LoginRateLimits(hot, LIMITS)
        for _ in range(9):
            await tries.take_back(await tries.begin(stranger("zoe", "n1")))

        async def is_refused() -> bool:
            try:
                await tries.begin(stranger("zoe", "n1"))
            except RateLimited:
                return True
            return False

        await eventually(is_refused, deadline_s=60, what="the attempts are used up")

        async def may_again() -> bool:
            return not await is_refused()

        await eventually(may_again, deadline_s=60, what="an attempt has come back")


async def test_guesses_of_strangers_delay_strangers_and_no_known_device(redis_url: str) -> None:
    """Past the budget of an account strangers are marked as over it; known devices never are."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = LoginRateLimits(
            hot, LIMITS.model_copy(update={"logins": config.RateLimit(0.001, 3)})
        )
        begun = [await tries.begin(stranger("yan", f"n{n}")) for n in range(6)]
        known = await tries.begin(LoginAttempt(UserId("yan"), "device", is_known=True))
        again = await tries.begin(stranger("yan", "n0"))

        assert [each.is_over_budget for each in begun] == [False] * 4 + [True] * 2
        assert [each.is_guess for each in begun] == [False] * GUESSES_FREE + [True] * 3
        assert not known.is_over_budget and not known.is_guess
        assert (begun[0].used, again.used, known.used) == (0, 1, 0)


async def test_right_password_gives_the_budget_of_the_account_back(redis_url: str) -> None:
    """Owners who log in from many places use nothing up."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = LoginRateLimits(hot, LIMITS)
        for n in range(12):
            begun = await tries.begin(stranger("xia", f"n{n}"))
            assert not begun.is_over_budget
            await tries.take_back(begun)
