"""Admission control of a gateway with Redis: which failures count, and when it refuses."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.gateway.transport.admission_control import Admission
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.token_buckets import RateLimits
from tests.support.servers.processes import eventually

FAILURES = 3
RULES = config.Limits(failures=config.RateLimit(0.01, FAILURES))
ATTACKER, OTHER = "203.0.113.7", "203.0.113.8"


@pytest.fixture
async def admission(hot: HotClient) -> Admission:
    """Admission control of one gateway."""
    return Admission(RateLimits(hot, RULES), ())


async def test_concurrent_failures_all_count(admission: Admission) -> None:
    """An address that guesses tokens faster than Redis responds is blocked too."""
    for _ in range(FAILURES):
        admission.charge_failure(ATTACKER)

    await eventually(lambda: admission.wait_s(ATTACKER) > 0)
    assert admission.wait_s(OTHER) == 0


async def test_address_blocked_at_one_gateway_is_blocked_at_another_after_its_next_failure(
    admission: Admission, hot: HotClient
) -> None:
    """All gateways share the bucket; each one reads it at the next failure."""
    for _ in range(FAILURES):
        admission.charge_failure(ATTACKER)
    await eventually(lambda: admission.wait_s(ATTACKER) > 0)
    other_gateway = Admission(RateLimits(hot, RULES), ())

    assert other_gateway.wait_s(ATTACKER) == 0

    other_gateway.charge_failure(ATTACKER)
    await eventually(lambda: other_gateway.wait_s(ATTACKER) > 0)
