"""Login rate limits (API6)."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.client_addresses import get_network, get_subject
from chatserver.domain.ids import UserId
from chatserver.errors import Overloaded, RateLimited
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.server_health import LOW_SHARE
from chatserver.hot.users.login_rate_limits import GUESSES_FREE, LoginRateLimits
from tests.support.servers.processes import eventually

# An attempt is refilled within a second, but slowly enough that a slow machine reaches the limit.
LIMITS = config.Limits(
    logins=config.RateLimit(1.0, 3),
    guesses=config.RateLimit(0.001, 4),
    entries=config.RateLimit(0.01, 2),
)


def unknown_device(user: str, network: str) -> LoginAttempt:
    """Return an attempt from an unknown device."""
    return LoginAttempt(UserId(user), network, is_known=False)


async def test_entries_of_a_network_are_limited(redis_url: str) -> None:
    """The limit applies to a network, whatever names are used. Other networks have their own."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(hot, LIMITS)
        for _ in range(2):
            await login_limits.count_login("4-c00002")

        with pytest.raises(RateLimited) as refused:
            await login_limits.count_login("4-c00002")

        assert refused.value.retry_after_ms is not None
        assert refused.value.retry_after_ms > 1000
        await login_limits.count_login("4-c00003")


async def test_registrations_of_a_network_are_limited_more_than_logins(redis_url: str) -> None:
    """One network cannot register accounts in stock, to use them when they are no longer new."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits, network = LoginRateLimits(hot, LIMITS), "4-c00005"
        for _ in range(8):  # four times the burst of logins
            await login_limits.count_registration(network)
            await hot.call("DEL", hot.keys.limit("entries", network))  # as after some time

        with pytest.raises(RateLimited):
            await login_limits.count_registration(network)
        await login_limits.count_login(network)


async def test_networks_of_an_ipv6_site_share_a_limit(redis_url: str) -> None:
    """A /48 has 65,536 networks, which one customer of a hosting provider gets."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(hot, LIMITS)
        for number in range(8):  # four times the burst of one network
            await login_limits.count_login(get_network(get_subject(f"2001:db8:7:{number}::1")))

        with pytest.raises(RateLimited):
            await login_limits.count_login(get_network(get_subject("2001:db8:7:ffff::1")))
        await login_limits.count_login(get_network(get_subject("2001:db8:8::1")))


async def test_registration_is_refused_while_redis_is_low_on_memory(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logins of existing accounts continue."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        monkeypatch.setattr(hot.health, "memory_share", LOW_SHARE)
        login_limits = LoginRateLimits(hot, LIMITS)

        with pytest.raises(Overloaded, match="registration is paused") as refused:
            await login_limits.count_registration("4-c00006")
        await login_limits.count_login("4-c00006")

        assert refused.value.retry_after_ms


async def test_refusal_is_cached_in_the_process(redis_url: str) -> None:
    """Until a token is refilled or returned, refusals need no call to Redis."""
    limits = LIMITS.model_copy(update={"logins": config.RateLimit(0.01, 3)})
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(hot, limits)
        attempts = [await login_limits.begin(unknown_device("wes", "n1")) for _ in range(3)]
        for _ in range(2):
            await login_limits.count_login("4-c00004")
        with pytest.raises(RateLimited) as first:
            await login_limits.count_login("4-c00004")
        with pytest.raises(RateLimited):
            await login_limits.begin(unknown_device("wes", "n1"))
        await hot.call("DEL", hot.keys.limit("entries", "4-c00004"))

        with pytest.raises(RateLimited) as second:
            await login_limits.count_login("4-c00004")

        assert 0 < (second.value.retry_after_ms or 0) <= (first.value.retry_after_ms or 0)
        await login_limits.return_token(attempts[0])
        await login_limits.begin(unknown_device("wes", "n1"))


async def test_cached_refusals_are_bounded(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest refusal is evicted, because an attacker can use any number of addresses."""
    monkeypatch.setattr("chatserver.hot.users.login_rate_limits.REFUSALS_MAX", 1)
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(hot, LIMITS)
        for network in ("4-c00005", "4-c00006"):
            for _ in range(2):
                await login_limits.count_login(network)
            with pytest.raises(RateLimited):
                await login_limits.count_login(network)
        await hot.call("DEL", hot.keys.limit("entries", "4-c00005"))

        await login_limits.count_login("4-c00005")


async def test_attempts_of_a_source_are_refilled_over_time(redis_url: str) -> None:
    """No source is locked out permanently, and correct passwords do not count."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(hot, LIMITS)
        for _ in range(9):
            await login_limits.return_token(await login_limits.begin(unknown_device("zoe", "n1")))

        async def is_refused() -> bool:
            try:
                await login_limits.begin(unknown_device("zoe", "n1"))
            except RateLimited:
                return True
            return False

        await eventually(is_refused, deadline_s=60, what="no attempt is left")

        async def is_allowed() -> bool:
            return not await is_refused()

        await eventually(is_allowed, deadline_s=60, what="an attempt is refilled")


async def test_guesses_over_the_account_budget_affect_unknown_devices_only(redis_url: str) -> None:
    """Beyond the budget of an account, only attempts of unknown devices are marked."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(
            hot, LIMITS.model_copy(update={"logins": config.RateLimit(0.001, 3)})
        )
        attempts = [await login_limits.begin(unknown_device("yan", f"n{n}")) for n in range(6)]
        known = await login_limits.begin(LoginAttempt(UserId("yan"), "device", is_known=True))
        again = await login_limits.begin(unknown_device("yan", "n0"))

        assert [each.is_over_budget for each in attempts] == [False] * 4 + [True] * 2
        assert [each.is_guess for each in attempts] == [False] * GUESSES_FREE + [True] * 3
        assert not known.is_over_budget and not known.is_guess
        assert (attempts[0].used, again.used, known.used) == (0, 1, 0)


async def test_correct_password_restores_the_account_budget(redis_url: str) -> None:
    """An owner who logs in from many networks does not use up the budget."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        login_limits = LoginRateLimits(hot, LIMITS)
        for n in range(12):
            attempt = await login_limits.begin(unknown_device("xia", f"n{n}"))
            assert not attempt.is_over_budget
            await login_limits.return_token(attempt)
