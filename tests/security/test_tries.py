"""How often somebody may try to come in (security.md 1 API6)."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.errors import RateLimited
from chatserver.hot.client import open_hot
from chatserver.hot.tries import Tries
from tests.support.servers import eventually

# A try comes back within a second, and not so fast that a slow machine never runs out of them.
LIMITS = config.Limits(logins_burst=3, logins_per_s=1.0, entries_burst=2, entries_per_s=0.01)


async def test_tries_of_an_address_are_bounded(redis_url: str) -> None:
    """Whatever names it tries, an address runs out; another one does not."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = Tries(hot, LIMITS)
        for _ in range(2):
            await tries.take("entries", "192-0-2-1")

        with pytest.raises(RateLimited) as refused:
            await tries.take("entries", "192-0-2-1")

        assert refused.value.retry_after_ms is not None
        assert refused.value.retry_after_ms > 1000
        await tries.take("entries", "192-0-2-2")


async def test_tries_come_back_with_time(redis_url: str) -> None:
    """A name is never locked for good, and a try that was right counts for nothing."""
    async with open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot:
        tries = Tries(hot, LIMITS)
        for _ in range(9):
            await tries.take("logins", "zoe")
            await tries.put_back("logins", "zoe")

        async def is_refused() -> bool:
            try:
                await tries.take("logins", "zoe")
            except RateLimited:
                return True
            return False

        await eventually(is_refused, deadline_s=60, what="the tries are used up")

        async def may_again() -> bool:
            return not await is_refused()

        await eventually(may_again, deadline_s=60, what="a try has come back")
