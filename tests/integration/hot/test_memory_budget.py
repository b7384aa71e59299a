"""Daily memory budget of one user in Redis: every kind of request is bounded by bytes."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.errors import RateLimited
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.token_buckets import MEMORY_BLOCK_BYTES, RateLimits
from tests.benchmarks.memory_budget import DAY_BYTES_MAX, WAYS, day_budget, measure

BUDGET = 300_000
# Keys that exist once per user or partition, and growth of the tables of Redis.
FIXED_BYTES = 200_000
STRICT = config.Limits().model_copy(update={"memory": config.RateLimit(0.001, 100_000)})


def test_day_budget_of_default_settings_is_below_20_mb() -> None:
    """One user can be charged at most the burst and a day's refill."""
    assert day_budget(config.Limits()) <= DAY_BYTES_MAX


@pytest.mark.parametrize("way", WAYS)
async def test_memory_used_by_requests_is_at_most_their_charge(redis_url: str, way: str) -> None:
    """Every kind of request is charged at least the Redis memory it uses, inboxes included."""
    _, charged, used = await measure(redis_url, way, 10 * BUDGET if "256" in way else BUDGET)

    assert used <= charged + FIXED_BYTES


async def test_memory_charge_after_a_request_remains_after_disconnect(hot: HotClient) -> None:
    """Memory charged after a request is subtracted before the next one is accepted."""
    one, two = RateLimits(hot, STRICT), RateLimits(hot, STRICT)
    await one.find("memory", "alice").pay("much data", 50_000)

    one.charge_memory("alice", 80_000)
    one.return_tokens("memory", "alice")
    one.charge_memory("alice", 20_000)
    await one.close()

    with pytest.raises(RateLimited) as refused:
        await two.find("memory", "alice").pay("much data", 1)
    assert refused.value.retry_after_ms is not None
    assert refused.value.retry_after_ms > 49_000_000  # 50,000 bytes at 0.001 per second


async def test_empty_memory_bucket_refuses_and_names_the_limit(hot: HotClient) -> None:
    """A request beyond the budget is `rate_limited` with the time until the refill."""
    one, two = RateLimits(hot, STRICT), RateLimits(hot, STRICT)
    spent = 0

    with pytest.raises(RateLimited, match=r"limits\.memory") as refused:
        while True:
            await one.find("memory", "alice").pay("much data (limits.memory)", 16_000)
            spent += 16_000
    assert 100_000 - 16_000 < spent <= 100_000
    assert refused.value.retry_after_ms is not None
    assert refused.value.retry_after_ms > 1_000_000  # the refill is 0.001 bytes per second

    with pytest.raises(RateLimited):
        await two.find("memory", "alice").pay("much data", MEMORY_BLOCK_BYTES)
    await two.find("memory", "bob").pay("much data", 16_000)
