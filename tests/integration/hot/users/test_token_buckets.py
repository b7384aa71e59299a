"""Rate limits: exact in Redis, with blocks of tokens at the gateways."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from chatserver import config
from chatserver.config.rate_limits import MEMORY_BURST_BYTES_MIN
from chatserver.domain.access.caller import RequestCaller
from chatserver.domain.client_addresses import get_networks, get_subject
from chatserver.errors import Overloaded, RateLimited
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.server_health import LOW_SHARE
from chatserver.hot.users.token_buckets import (
    BLOCK_S,
    NETWORK_REQUESTS_FACTOR,
    OWED_BYTES_MAX,
    OWED_REQUESTS_MAX,
    Allowance,
    RateLimits,
)
from tests.integration.hot.support import Scripts, redis_settings
from tests.support.servers.processes import StartRedis, eventually, redis_url_of

BURST, RATE = 40, 40.0
BLOCK = round(RATE * BLOCK_S)
RULES = config.Limits(
    sends=config.RateLimit(RATE, BURST),
    failures=config.RateLimit(0.02, 3),
    requests=config.RateLimit(0.5, 64),
)


async def acquire(allowance: Allowance) -> bool:
    """Take a token like a session: wait while tokens are requested from Redis."""
    while not allowance.spend():
        if allowance.wait_ms():
            return False
        answered = asyncio.Event()
        allowance.request(answered.set)
        await answered.wait()
    return True


async def acquire_all(allowance: Allowance, most: int = 10 * BURST) -> int:
    """Take tokens until none is left, at most `most`: on a slow machine the refill never ends."""
    taken = 0
    while taken < most and await acquire(allowance):
        taken += 1
    return taken


@pytest.fixture
async def one(hot: HotClient) -> RateLimits:
    """The limits of a gateway."""
    return RateLimits(hot, RULES)


@pytest.fixture
async def two(hot: HotClient) -> RateLimits:
    """The limits of another gateway."""
    return RateLimits(hot, RULES)


async def test_burst_is_allowed_at_once_and_no_more(one: RateLimits) -> None:
    """A full bucket has `burst` tokens, whatever the size of a block."""
    start = time.monotonic()

    taken = await acquire_all(one.find("sends", "alice"))

    assert BURST <= taken <= BURST + RATE * (time.monotonic() - start)


async def test_two_gateways_allow_the_rate_of_one(one: RateLimits, two: RateLimits) -> None:
    """They allow at most rate x time + burst + a block per gateway, and at least half the rate."""
    start = time.monotonic()
    taken, late_s = 0, 0.0  # `late_s` is the time in which no token was requested.

    async def request_tokens(limits: RateLimits) -> None:
        nonlocal taken, late_s
        allowance = limits.find("sends", "alice")
        while time.monotonic() - start < 1.5:
            due = time.monotonic()
            if await acquire(allowance):
                taken += 1
            else:
                due += (wait_s := allowance.wait_ms() / 1000)
                await asyncio.sleep(wait_s)
            late_s += max(0.0, time.monotonic() - due)

    await asyncio.gather(request_tokens(one), request_tokens(two))

    at_most = BURST + RATE * (time.monotonic() - start) + 2 * BLOCK
    assert BURST + RATE * (1.5 - late_s) * 0.5 <= taken <= at_most


async def test_wait_ms_is_the_time_until_the_next_token(
    one: RateLimits, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this time one request succeeds and the next one does not."""
    allowance = one.find("failures", "4-7f000001")
    assert await acquire_all(allowance) == 3

    wait_ms = allowance.wait_ms()
    assert 25_000 < wait_ms <= 50_000  # one token in fifty seconds

    # Advance the time here and in Redis, where the bucket has the time of its last update.
    now = one.now
    monkeypatch.setattr(one, "now", lambda: now() + wait_ms / 1000)
    scripts.redis.hincrby(scripts.keys.limit("failures", "4-7f000001"), "at", -wait_ms)
    assert await acquire(allowance)
    assert not await acquire(allowance)


async def test_messages_do_not_need_a_call_each(one: RateLimits, scripts: Scripts) -> None:
    """Tokens are requested in blocks."""
    before = scripts.redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)

    # A limited number: on a slow machine the refill would come in small blocks.
    taken = await acquire_all(one.find("sends", "alice"), BURST)

    after = scripts.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert taken == BURST
    assert after - before <= 2 * taken / BLOCK + 4


async def test_return_tokens_returns_unused_tokens(one: RateLimits, two: RateLimits) -> None:
    """A user who reconnects to another gateway has all remaining tokens there."""
    assert await acquire(one.find("sends", "alice"))
    one.return_tokens("sends", "alice")

    assert await acquire_all(two.find("sends", "alice")) >= BURST - 1


async def test_return_tokens_during_a_request_returns_its_tokens(
    one: RateLimits, two: RateLimits
) -> None:
    """A user who disconnects before the reply leaves no tokens at the gateway."""
    one.find("sends", "alice").request()
    await asyncio.sleep(0)
    one.return_tokens("sends", "alice")
    await one.close()

    assert await acquire_all(two.find("sends", "alice")) >= BURST


async def test_payment_with_a_removed_allowance_ends_and_keeps_no_tokens(
    one: RateLimits, two: RateLimits
) -> None:
    """A request that waits for tokens when its user's allowance is removed is paid once."""
    allowance = one.find("sends", "alice")
    one.return_tokens("sends", "alice")

    async with asyncio.timeout(10):
        await allowance.pay("many sends")
    await one.close()

    assert allowance.is_removed
    assert not one.find("sends", "alice").is_removed
    assert await acquire_all(two.find("sends", "alice")) >= BURST - 1


async def test_limits_are_separate_by_user_and_kind(one: RateLimits) -> None:
    """Neither another user nor another kind of request is limited."""
    await acquire_all(one.find("sends", "alice"))

    assert await acquire(one.find("sends", "bob"))
    assert await acquire(one.find("requests", "alice"))


async def test_bucket_expires_when_it_is_full(hot: HotClient, scripts: Scripts) -> None:
    """Redis keeps nothing for inactive users."""
    slow = RateLimits(hot, config.Limits(sends=config.RateLimit(0.05, 5)))
    assert await acquire_all(slow.find("sends", "alice")) == 5

    # It is full after a hundred seconds and expires a second later.
    assert 50_000 < scripts.redis.pttl(scripts.keys.limit("sends", "alice")) <= 101_000


async def test_take_without_redis_is_allowed(start_redis: StartRedis) -> None:
    """A limit does not fail requests: the limited call itself reports the error."""
    server = start_redis()
    async with open_hot(redis_settings(redis_url_of(server))) as hot:
        limits = RateLimits(hot, RULES)
        server.kill()
        await eventually(lambda: not hot.is_up, what="the client is disconnected")

        assert await acquire(limits.find("sends", "alice"))


async def test_allowances_of_inactive_addresses_are_removed(
    one: RateLimits, two: RateLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway does not keep tokens of inactive users."""
    monkeypatch.setattr("chatserver.hot.users.token_buckets.IDLE_S", 0.0)
    monkeypatch.setattr("chatserver.hot.users.token_buckets.SWEEP_S", 0.01)
    allowance = one.find("connections", "4-7f000001")
    assert await acquire(allowance)

    sweeper = asyncio.create_task(one.run())
    await eventually(
        lambda: one.find("connections", "4-7f000001") is not allowance,
        what="the allowance is removed",
    )
    sweeper.cancel()


async def test_cost_of_a_request_is_charged_completely_or_not_at_all(
    one: RateLimits, two: RateLimits
) -> None:
    """The error of an expensive request has the time until there are enough tokens."""
    allowance = one.find("requests", "alice")
    await allowance.pay("requests", 64)

    with pytest.raises(RateLimited) as caught:
        await allowance.pay("requests", 32)
    with pytest.raises(RateLimited):
        await two.find("requests", "alice").pay("requests")

    assert caught.value.retry_after_ms
    assert 50_000 < caught.value.retry_after_ms <= 64_000  # 32 tokens at 0.5 a second
    await one.find("requests", "bob").pay("requests", 64)


async def test_cost_that_exceeds_the_tokens_does_not_block_cheap_requests(one: RateLimits) -> None:
    """Tokens that are too few for an expensive request are used for cheap ones."""
    allowance = one.find("requests", "alice")
    await allowance.pay("requests", 60)
    with pytest.raises(RateLimited):
        await allowance.pay("requests", 30)

    for _ in range(4):
        await allowance.pay("requests")
    with pytest.raises(RateLimited):
        await allowance.pay("requests")


async def test_cost_charged_by_another_process_is_paid_first(
    one: RateLimits, two: RateLimits
) -> None:
    """The work of a search is charged by the process that ran it, and the user waits for it."""
    await one.find("requests", "alice").pay("requests")
    two.charge("requests", "alice", 200)

    async def is_refused() -> bool:
        try:
            await one.find("requests", "alice").pay("requests")
        except RateLimited as refused:
            return (refused.retry_after_ms or 0) > 200_000  # about 137 tokens at 0.5 a second
        return False

    await eventually(is_refused, what="the charge reaches Redis")
    await one.find("requests", "bob").pay("requests", 64)


MEMORY = config.Limits(memory=config.RateLimit(1, 400_000))
NETWORK_BYTES = 5 * 400_000  # of the new accounts of one network


async def take_memory(limits: RateLimits, user: str, address: str, piece: int = 10_000) -> int:
    """Take as much memory as a new account gets at once; return the bytes."""
    caller = RequestCaller(user, get_networks(get_subject(address)))
    allowance = limits.find_for_caller("memory", caller)
    taken = 0
    while taken < 4 * NETWORK_BYTES:
        try:
            await allowance.pay("memory", piece)
        except RateLimited:
            return taken
        taken += piece
    return taken


async def test_new_accounts_of_a_network_share_its_memory_budget(hot: HotClient) -> None:
    """However many accounts an attacker registers, one network adds a bounded amount to Redis."""
    limits = RateLimits(hot, MEMORY)

    taken = [await take_memory(limits, f"new-{n}", f"10.1.2.{n}") for n in range(20)]

    assert max(taken) <= MEMORY_BURST_BYTES_MIN  # a new account has a smaller burst
    assert 0.8 * NETWORK_BYTES <= sum(taken) <= NETWORK_BYTES * 1.01
    assert await take_memory(limits, "new-elsewhere", "10.1.3.1") > 0
    await limits.find_for_caller("memory", RequestCaller("known")).pay("memory", 390_000)


async def send_until_refused(limits: RateLimits, caller: RequestCaller) -> int:
    """Return how many messages a user may send at once."""
    allowance = limits.find_for_caller("sends", caller)
    sent = 0
    with contextlib.suppress(RateLimited):
        while True:
            await allowance.pay("many sends")
            sent += 1
    return sent


async def test_new_accounts_of_a_network_share_its_sends(hot: HotClient) -> None:
    """However many accounts an attacker registers, one network sends at a bounded rate."""
    limits = RateLimits(hot, config.Limits(sends=config.RateLimit(0.01, 500)))
    burst = 500

    sent = [
        await send_until_refused(limits, RequestCaller(f"new-{number}", ("4-0a0102",)))
        for number in range(20)
    ]

    assert sent[0] == burst / 2  # one account leaves sends for the others
    assert 0.9 * burst <= sum(sent) <= burst + 1
    assert await send_until_refused(limits, RequestCaller("new", ("4-0a0103",))) == sent[0]
    assert await send_until_refused(limits, RequestCaller("known")) == 500


async def test_new_accounts_of_a_network_share_its_requests(hot: HotClient) -> None:
    """Many accounts cannot make more requests than a few; protective requests still work."""
    limits = RateLimits(hot, config.Limits(requests=config.RateLimit(0.01, 100)))
    network = 100 * NETWORK_REQUESTS_FACTOR

    async def spend(user: str, *networks: str) -> int:
        allowance = limits.find_for_caller("requests", RequestCaller(user, networks))
        spent = 0
        with contextlib.suppress(RateLimited):
            while spent < network:
                await allowance.pay("many requests")
                spent += 1
        return spent

    made = [await spend(f"new-{number}", "4-0a0102") for number in range(2 * 8)]

    assert made[0] == 100
    assert 0.9 * network <= sum(made) <= network + 1
    assert await spend("elsewhere", "4-0a0103") == 100
    assert await spend("known") == 100
    late = limits.find_for_caller("requests", RequestCaller("late", ("4-0a0102",)))
    assert [late.owe(2) for _ in range(40)].count(True) == OWED_REQUESTS_MAX // 2


async def test_debts_of_new_accounts_are_not_those_of_their_network(hot: HotClient) -> None:
    """Accounts that owe and disconnect do not take the protective requests of others."""
    limits = RateLimits(hot, config.Limits(requests=config.RateLimit(0.01, 64)))
    networks = ("4-0a0102",)

    async def are_replies_handled() -> bool:
        return not limits._tasks and not limits._requests

    for number in range(2 * NETWORK_REQUESTS_FACTOR):
        debtor = limits.find_for_caller("requests", RequestCaller(f"debtor-{number}", networks))
        assert debtor.owe(64)
        await eventually(are_replies_handled)
        limits.return_tokens("requests", f"debtor-{number}")
        await eventually(are_replies_handled)
    late = limits.find_for_caller("requests", RequestCaller("late", networks))
    with contextlib.suppress(RateLimited):
        for _ in range(10 * 64):
            await late.pay("many requests")

    assert late.owe(4)


async def test_idle_new_accounts_hold_few_sends_of_their_network(hot: HotClient) -> None:
    """Sixty new people of an office greet each other at the same time."""
    limits = RateLimits(hot, config.Limits())

    for number in range(60):
        caller = RequestCaller(f"new-{number}", ("4-0a0102",))
        await limits.find_for_caller("sends", caller).pay("many sends")


async def test_new_accounts_of_an_ipv6_site_share_its_memory_budget(hot: HotClient) -> None:
    """A /48 has 65,536 networks of one customer."""
    limits = RateLimits(hot, MEMORY)

    taken = [
        await take_memory(limits, f"new-{n}", f"2001:db8:1:{n:x}::1", 100_000) for n in range(60)
    ]

    assert 3 * NETWORK_BYTES < sum(taken) <= 4 * NETWORK_BYTES * 1.01
    assert await take_memory(limits, "new-elsewhere", "2001:db8:2::1") > 0


async def test_memory_that_new_accounts_do_not_use_is_returned_to_their_network(
    hot: HotClient,
) -> None:
    """Accounts that connect and send little do not use up the budget of their neighbors."""
    limits = RateLimits(hot, MEMORY)
    for number in range(100):  # each takes a block of 32 KB: 3.2 MB, more than the budget
        caller = RequestCaller(f"calm-{number}", ("4-0a0102",))
        await limits.find_for_caller("memory", caller).pay("memory", 1000)
        limits.return_tokens("memory", f"calm-{number}")

    # Tokens are returned in the background.
    await eventually(lambda: not limits._tasks and not limits._requests)
    left = [await take_memory(limits, f"new-{n}", "10.1.2.1") for n in range(10)]
    assert sum(left) >= NETWORK_BYTES - 100 * 1000 - 10 * 10_000


async def test_new_accounts_wait_while_redis_is_low_on_memory(
    hot: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other accounts continue, and a new account may still protect itself."""
    monkeypatch.setattr(hot.health, "memory_share", LOW_SHARE)
    limits = RateLimits(hot, MEMORY)
    allowance = limits.find_for_caller("memory", RequestCaller("new", ("4-0a0102",)))

    with pytest.raises(Overloaded, match="new accounts must wait") as refused:
        await allowance.pay("memory", 1000)
    await limits.find_for_caller("memory", RequestCaller("known")).pay("memory", 1000)

    assert refused.value.retry_after_ms
    owed = 0
    while allowance.owe(4096):
        owed += 4096
    assert OWED_BYTES_MAX - 4096 <= owed <= OWED_BYTES_MAX


async def test_debt_in_redis_counts_for_a_new_connection(hot: HotClient) -> None:
    """A user who reconnects cannot owe the same bytes again."""
    burst = MEMORY.memory.burst
    RateLimits(hot, MEMORY).charge_memory("debtor", burst + OWED_BYTES_MAX - 4096)
    limits = RateLimits(hot, MEMORY)
    allowance = limits.find_for_caller("memory", RequestCaller("debtor"))

    assert not await acquire(allowance)

    assert allowance.owe(2048)
    assert not allowance.owe(8192)
