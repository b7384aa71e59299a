"""Rate limits: exact in Redis, nearly free at a gateway, and never exceeded."""

from __future__ import annotations

import asyncio
import time

import pytest

from chatserver import config
from chatserver.errors import RateLimited
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.rate_limits import BLOCK_S, Allowance, Limits
from tests.integration.hot.support import Scripts, patient
from tests.support.servers.processes import StartRedis, eventually, redis_url_of

pytest_plugins = ["tests.integration.hot.fixtures"]

BURST, RATE = 40, 40.0
BLOCK = round(RATE * BLOCK_S)
RULES = config.Limits(
    sends=config.RateLimit(RATE, BURST),
    failures=config.RateLimit(0.02, 3),
    requests=config.RateLimit(0.5, 64),
)


async def take(allowance: Allowance) -> bool:
    """Take a token, as a session does: hold on while Redis is asked."""
    while not allowance.take():
        if allowance.wait_ms():
            return False
        answered = asyncio.Event()
        allowance.ask(answered.set)
        await answered.wait()
    return True


async def take_all(allowance: Allowance, most: int = 10 * BURST) -> int:
    """Take tokens until there are none, or so many: a slow machine may never see the last one."""
    taken = 0
    while taken < most and await take(allowance):
        taken += 1
    return taken


@pytest.fixture
async def one(hot: HotClient) -> Limits:
    """The limits of a gateway."""
    return Limits(hot, RULES)


@pytest.fixture
async def two(hot: HotClient) -> Limits:
    """The limits of another one."""
    return Limits(hot, RULES)


async def test_burst_is_let_through_at_once_and_no_more(one: Limits) -> None:
    """A full bucket is worth `burst`, whatever the size of a block."""
    start = time.monotonic()

    taken = await take_all(one.find("sends", "alice"))

    assert BURST <= taken <= BURST + RATE * (time.monotonic() - start)


async def test_two_gateways_let_through_what_one_would(one: Limits, two: Limits) -> None:
    """Over time: rate x time + burst, and a block for each gateway; nor much less."""
    start = time.monotonic()
    taken, late_s = 0, 0.0  # `late_s`: in which nobody asked, though there may have been a token

    async def hammer(limits: Limits) -> None:
        nonlocal taken, late_s
        allowance = limits.find("sends", "alice")
        while time.monotonic() - start < 1.5:
            due = time.monotonic()
            if await take(allowance):
                taken += 1
            else:
                due += (wait_s := allowance.wait_ms() / 1000)
                await asyncio.sleep(wait_s)
            late_s += max(0.0, time.monotonic() - due)

    await asyncio.gather(hammer(one), hammer(two))

    at_most = BURST + RATE * (time.monotonic() - start) + 2 * BLOCK
    assert BURST + RATE * (1.5 - late_s) * 0.5 <= taken <= at_most


async def test_wait_ms_is_when_a_token_comes(
    one: Limits, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that waits as long as stated succeeds; slightly earlier it would not."""
    allowance = one.find("failures", "4-7f000001")
    assert await take_all(allowance) == 3

    wait_ms = allowance.wait_ms()
    assert 25_000 < wait_ms <= 50_000  # a token in fifty seconds

    # The time goes by: here, and in Redis, where the bucket says for when its number holds.
    now = one.now
    monkeypatch.setattr(one, "now", lambda: now() + wait_ms / 1000)
    scripts.redis.hincrby(scripts.keys.limit("failures", "4-7f000001"), "at", -wait_ms)
    assert await take(allowance)
    assert not await take(allowance)


async def test_messages_do_not_cost_a_call_each(one: Limits, scripts: Scripts) -> None:
    """A block at a time: many messages, few calls."""
    before = scripts.redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)

    # Not until there are none: who is slow gets what came meanwhile, little by little.
    taken = await take_all(one.find("sends", "alice"), BURST)

    after = scripts.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert taken == BURST
    assert after - before <= 2 * taken / BLOCK + 4


async def test_give_back_returns_what_was_not_spent(one: Limits, two: Limits) -> None:
    """A user who goes elsewhere finds the whole of what is left there."""
    assert await take(one.find("sends", "alice"))
    one.return_tokens("sends", "alice")

    assert await take_all(two.find("sends", "alice")) >= BURST - 1


async def test_give_back_while_asking_returns_what_comes(one: Limits, two: Limits) -> None:
    """A user who leaves before the answer leaves nothing behind, either."""
    one.find("sends", "alice").ask()
    await asyncio.sleep(0)
    one.return_tokens("sends", "alice")
    await one.close()

    assert await take_all(two.find("sends", "alice")) >= BURST


async def test_subjects_and_kinds_do_not_share(one: Limits) -> None:
    """Limits are separate by user and by kind."""
    await take_all(one.find("sends", "alice"))

    assert await take(one.find("sends", "bob"))
    assert await take(one.find("requests", "alice"))


async def test_bucket_expires_when_it_would_be_full(hot: HotClient, scripts: Scripts) -> None:
    """Redis keeps nothing for inactive users."""
    slow = Limits(hot, config.Limits(sends=config.RateLimit(0.05, 5)))
    assert await take_all(slow.find("sends", "alice")) == 5

    # In a hundred seconds it is full, and a second later it is gone.
    assert 50_000 < scripts.redis.pttl(scripts.keys.limit("sends", "alice")) <= 101_000


async def test_ask_without_redis_lets_go_on(start_redis: StartRedis) -> None:
    """A limit does not fail requests: the limited call itself reports the error."""
    server = start_redis()
    async with open_hot(patient(redis_url_of(server))) as hot:
        limits = Limits(hot, RULES)
        server.kill()
        await eventually(lambda: not hot.is_up, what="the loss is noticed")

        assert await take(limits.find("sends", "alice"))


async def test_allowances_of_quiet_addresses_are_let_go(
    one: Limits, two: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway does not keep tokens of inactive users."""
    monkeypatch.setattr("chatserver.hot.users.rate_limits.IDLE_S", 0.0)
    monkeypatch.setattr("chatserver.hot.users.rate_limits.SWEEP_S", 0.01)
    allowance = one.find("connections", "4-7f000001")
    assert await take(allowance)

    sweeper = asyncio.create_task(one.run())
    await eventually(
        lambda: one.find("connections", "4-7f000001") is not allowance, what="it was let go"
    )
    sweeper.cancel()


async def test_cost_of_a_request_is_taken_at_once_or_not_at_all(one: Limits, two: Limits) -> None:
    """An expensive request takes many tokens; a refusal has the time until there are enough."""
    dear = one.find("requests", "alice")
    await dear.pay("requests", 64)

    with pytest.raises(RateLimited) as caught:
        await dear.pay("requests", 32)
    with pytest.raises(RateLimited):
        await two.find("requests", "alice").pay("requests")

    assert caught.value.retry_after_ms
    assert 50_000 < caught.value.retry_after_ms <= 64_000  # 32 tokens at 0.5 a second
    await one.find("requests", "bob").pay("requests", 64)


async def test_cost_that_is_not_at_hand_leaves_cheap_requests_alone(one: Limits) -> None:
    """Tokens that do not suffice for a dear request are spent on cheap ones."""
    allowance = one.find("requests", "alice")
    await allowance.pay("requests", 60)
    with pytest.raises(RateLimited):
        await allowance.pay("requests", 30)

    for _ in range(4):
        await allowance.pay("requests")
    with pytest.raises(RateLimited):
        await allowance.pay("requests")
