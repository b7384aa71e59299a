"""Makes the server fixtures known to every test; says how properties are searched."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import hypothesis
import pytest

from tests.support import pure_python

# isort: split
from chatserver.operations.cost import recorder
from tests.support.constants import constants
from tests.support.server_lifetime import ServerLifetime, group_of
from tests.support.servers.processes import (
    dynamodb,
    dynamodb_server,
    limited_dynamodb,
    partial_dynamodb,
    redis_server,
    redis_url,
    s3,
    start_dynamodb,
    start_redis,
)

__all__ = [
    "dynamodb",
    "dynamodb_server",
    "limited_dynamodb",
    "partial_dynamodb",
    "redis_server",
    "redis_url",
    "s3",
    "start_dynamodb",
    "start_redis",
]

pure_python.leave_to_children()

# Collecting and importing create few reference cycles: a tenth of their CPU time was spent on them.
gc.set_threshold(20_000)

# The same examples in each run, so that what fails is the change's doing; `make soak` takes others.
# A property says what is true, not how fast: an example that the machine held up has broken none.
PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("fixed", PATIENT, derandomize=True)
hypothesis.settings.register_profile("soak", PATIENT, derandomize=False)
# For tests that run here with all examples, and again in a copy of the sources (test_removal.py).
hypothesis.settings.register_profile("few", PATIENT, derandomize=True, max_examples=5)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Parts that live as long as the run rest while tests on other loops run: what they would do by
# themselves meanwhile is cut short by a deadline. Processes that tests start do it as ever.
recorder.FLUSH_S = 3600.0  # type: ignore[misc]  # a constant of the product

# The files that take longest first: what is left at the end is short, and no process waits for
# another one's last minutes. Within a folder the order stays random.
_LONGEST_FIRST = ("chaos", "e2e", "integration", "security", "unit")


def pytest_configure(config: pytest.Config) -> None:
    """Stop the servers of a folder after its tests."""
    config.pluginmanager.register(ServerLifetime())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by folder, and keep those together that share servers."""
    groups: dict[tuple[str, ...], int] = {}
    for item in items:
        groups.setdefault(group_of(item), len(groups))
    items.sort(key=lambda item: (_LONGEST_FIRST.index(group_of(item)[0]), groups[group_of(item)]))


@pytest.fixture(autouse=True)
def constants_of_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the constants that the marks of a test name: `@pytest.mark.constants({path: value})`."""
    values = {}
    for marker in request.node.iter_markers("constants"):
        values = {**marker.args[0], **values}  # the nearest mark comes first
    with constants(values):
        yield
