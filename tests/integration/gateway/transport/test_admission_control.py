"""The door of a gateway, with Redis behind it: what it counts, and when it shuts."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.gateway.transport.admission_control import Admission
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.rate_limits import Limits
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.hot.fixtures"]

FAILURES = 3
RULES = config.Limits(failures=config.RateLimit(0.01, FAILURES))
GUESSER, OTHER = "203.0.113.7", "203.0.113.8"


@pytest.fixture
async def door(hot: HotClient) -> Admission:
    """The door of one gateway."""
    return Admission(Limits(hot, RULES), ())


async def test_failures_at_one_moment_all_count(door: Admission) -> None:
    """Guessing over many connections, faster than Redis responds, is blocked, too."""
    for _ in range(FAILURES):
        door.failed(GUESSER)

    await eventually(lambda: door.wait_s(GUESSER) > 0)
    assert door.wait_s(OTHER) == 0


async def test_another_gateway_hears_of_it_with_the_next_failure_there(
    door: Admission, hot: HotClient
) -> None:
    """All gateways share the bucket: a gateway notices with its next failure."""
    for _ in range(FAILURES):
        door.failed(GUESSER)
    await eventually(lambda: door.wait_s(GUESSER) > 0)
    other_door = Admission(Limits(hot, RULES), ())

    assert other_door.wait_s(GUESSER) == 0

    other_door.failed(GUESSER)
    await eventually(lambda: other_door.wait_s(GUESSER) > 0)
